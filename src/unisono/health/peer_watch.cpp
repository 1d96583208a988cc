#include "unisono/health/peer_watch.h"

#include <sys/epoll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/process.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/monitored_group.h"
#include "unisono/health/node_peers.h"
#include "unisono/health/stack_dump.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/io.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"

namespace unisono::health {
namespace {

bool is_for_watchers(transport::FrameKind kind) {
  return kind == transport::FrameKind::kAbort || kind == transport::FrameKind::kLeave ||
         kind == transport::FrameKind::kAsk;
}

}  // namespace

PeerWatch::PeerWatch(net::EventLoop& loop,
                     const NodePeer& peer,
                     const rendezvous::Member& member,
                     GroupRegistry& groups,
                     StackDump& stacks)
    : loop_(loop), peer_(peer), groups_(groups), stacks_(stacks) {
  loop_.add(peer_.socket.get(), EPOLLIN, [this](std::uint32_t) { read_socket(); });
  // A child that the peer made by clone() may hold the socket open beyond its death; its process
  // tells anyway.
  if (member.pid != ::getpid()) {
    process_ = open_pidfd(static_cast<pid_t>(member.pid));
  }
  if (process_.is_open()) {
    loop_.add(process_.get(), EPOLLIN, [this](std::uint32_t) {
      read_socket();
      note_end();
    });
  }
}

void PeerWatch::read_socket() {
  std::array<std::byte, 4096> buffer{};
  while (is_watching_) {
    const net::IoResult result = net::read_some(peer_.socket.get(), buffer);
    switch (result.status) {
      case net::IoStatus::kDone:
        received_.insert(received_.end(), buffer.begin(), buffer.begin() + result.n_bytes);
        handle_frames();
        break;
      case net::IoStatus::kWouldBlock:
        return;
      case net::IoStatus::kClosed:
      case net::IoStatus::kError:
        note_end();
        return;
    }
  }
}

void PeerWatch::handle_frames() {
  while (received_.size() >= transport::kFrameBytes) {
    const std::optional<transport::Frame> frame =
        transport::decode(std::span(received_).first<transport::kFrameBytes>());
    if (!frame || !is_for_watchers(frame->kind)) {
      groups_.notify_all([rank = peer_.rank](MonitoredGroup& group) {
        group.note_failure(rank, ErrorCode::kCorruptData, "sent bytes that are no frame");
      });
      stop_watching();
      return;
    }
    const std::size_t size = transport::kFrameBytes + frame->n_bytes;
    if (received_.size() < size) {
      return;
    }
    const auto number = static_cast<std::uint32_t>(frame->sequence);
    if (frame->kind == transport::FrameKind::kLeave) {
      groups_.notify(number,
                     [rank = peer_.rank](MonitoredGroup& group) { group.note_departure(rank); });
    } else if (frame->kind == transport::FrameKind::kAsk) {
      stacks_.show(peer_.rank);
    } else {
      const auto text = std::span(received_).subspan(transport::kFrameBytes, frame->n_bytes);
      const Error error = transport::decode_abort(*frame, text);
      groups_.notify(number, [rank = peer_.rank, error](MonitoredGroup& group) {
        group.note_abort(rank, error);
      });
    }
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(size));
  }
}

void PeerWatch::note_end() {
  if (!is_watching_) {
    return;
  }
  stop_watching();
  groups_.notify_all([rank = peer_.rank](MonitoredGroup& group) { group.note_death(rank); });
}

void PeerWatch::stop_watching() {
  is_watching_ = false;
  loop_.remove(peer_.socket.get());
  if (process_.is_open()) {
    loop_.remove(process_.get());
  }
}

}  // namespace unisono::health
