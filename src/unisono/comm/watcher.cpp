#include "unisono/comm/watcher.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "unisono/base/fd.h"
#include "unisono/base/thread.h"
#include "unisono/comm/links.h"
#include "unisono/net/hello.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::comm {
namespace {

// The socket goes to the group that it is for.
Doorkeeper::Deliver deliver_to(GroupRegistry& groups) {
  return [&groups](const net::HelloInfo& visitor, Fd socket) {
    auto shared = std::make_shared<Fd>(std::move(socket));
    groups.notify(visitor.group,
                  [visitor, shared](Links& links) { links.deliver(visitor, std::move(*shared)); });
  };
}

}  // namespace

Watcher::Watcher(const WatcherParts& parts)
    : doorkeeper_(
          loop_,
          parts.data_listener,
          {.job = parts.roster.job, .purpose = tcp::kDataPurpose, .rank = parts.roster.rank},
          parts.secret,
          parts.roster.world_size(),
          parts.logger,
          deliver_to(parts.groups)) {
  for (const shm::NodePeer& peer : parts.peers) {
    const auto& member = parts.roster.members[static_cast<std::size_t>(peer.rank)];
    watches_.push_back(
        std::make_unique<PeerWatch>(loop_, peer, member, parts.groups, parts.stacks));
  }
  thread_ = start_thread(
      "unisono-watch",
      fmt::format("rank {} can't start the thread that watches its peers", parts.roster.rank),
      [this] { loop_.run(); });
}

Watcher::~Watcher() {
  loop_.stop();
  thread_.join();
}

}  // namespace unisono::comm
