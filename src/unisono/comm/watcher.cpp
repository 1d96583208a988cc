#include "unisono/comm/watcher.h"

#include <pthread.h>

#include <memory>
#include <thread>
#include <utility>

#include "unisono/base/fd.h"
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
    watches_.push_back(std::make_unique<PeerWatch>(loop_, peer, member, parts.groups));
  }
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "unisono-watch");
    loop_.run();
  });
}

Watcher::~Watcher() {
  loop_.stop();
  thread_.join();
}

}  // namespace unisono::comm
