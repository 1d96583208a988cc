#include "unisono/comm/watcher.h"

#include <pthread.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/frame.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/message_mesh.h"

namespace unisono::comm {

Watcher::Watcher(const WatcherParts& parts)
    : parts_(parts),
      doorkeeper_(
          loop_,
          parts.data_listener,
          {.job = parts.roster.job,
           .purpose = tcp::kDataPurpose,
           .rank = parts.roster.rank,
           .group = 0},
          parts.secret,
          parts.roster.world_size(),
          parts.ranks.logger(),
          [this](const net::HelloInfo& theirs, Fd socket) { deliver(theirs, std::move(socket)); }) {
  for (const shm::NodePeer& peer : parts_.peers) {
    watches_.push_back(std::make_unique<PeerWatch>(
        loop_, peer, parts_.roster, parts_.ranks, parts_.failure, parts_.wake));
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

void Watcher::deliver(const net::HelloInfo& theirs, Fd socket) {
  const bool is_for_messages = theirs.purpose == tcp::kMessagePurpose;
  if (parts_.failure.is_set()) {
    // It came after the others were told.
    if (is_for_messages) {
      tcp::MessageMesh::welcome(socket.get());
    }
    (void)net::write_some(socket.get(), tcp::encode_abort(parts_.failure.error()));
  } else if (is_for_messages) {
    parts_.message_mesh.deliver(theirs.rank, std::move(socket));
  } else {
    parts_.mesh.deliver(theirs.rank, std::move(socket));
  }
}

void Watcher::tell_peers(
    const std::function<std::vector<std::byte>()>& encode_frame) const noexcept {
  try {
    const std::vector<std::byte> frame = encode_frame();
    for (const shm::NodePeer& peer : parts_.peers) {
      // A peer that can't take it has hundreds of such frames before it, or is gone.
      (void)net::write_some(peer.socket.get(), frame);
    }
  } catch (const std::exception&) {
    // Out of memory while giving up: the closed sockets have to say it.
    return;
  }
}

}  // namespace unisono::comm
