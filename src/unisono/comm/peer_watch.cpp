#include "unisono/comm/peer_watch.h"

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
#include "unisono/comm/group_registry.h"
#include "unisono/comm/links.h"
#include "unisono/comm/stack_dump.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/io.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/frame.h"

namespace unisono::comm {
namespace {

bool is_for_watchers(tcp::FrameKind kind) {
  return kind == tcp::FrameKind::kAbort || kind == tcp::FrameKind::kLeave ||
         kind == tcp::FrameKind::kAsk;
}

}  // namespace

PeerWatch::PeerWatch(net::EventLoop& loop,
                     const shm::NodePeer& peer,
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
  while (received_.size() >= tcp::kFrameBytes) {
    const std::optional<tcp::Frame> frame =
        tcp::decode(std::span(received_).first<tcp::kFrameBytes>());
    if (!frame || !is_for_watchers(frame->kind)) {
      groups_.notify_all([rank = peer_.rank](Links& links) {
        links.note_failure(rank, ErrorCode::kCorruptData, "sent bytes that are no frame");
      });
      stop_watching();
      return;
    }
    const std::size_t size = tcp::kFrameBytes + frame->n_bytes;
    if (received_.size() < size) {
      return;
    }
    const auto number = static_cast<std::uint32_t>(frame->sequence);
    if (frame->kind == tcp::FrameKind::kLeave) {
      groups_.notify(number, [rank = peer_.rank](Links& links) { links.note_departure(rank); });
    } else if (frame->kind == tcp::FrameKind::kAsk) {
      stacks_.show(peer_.rank);
    } else {
      const auto text = std::span(received_).subspan(tcp::kFrameBytes, frame->n_bytes);
      const Error error = tcp::decode_abort(*frame, text);
      groups_.notify(number,
                     [rank = peer_.rank, error](Links& links) { links.note_abort(rank, error); });
    }
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(size));
  }
}

void PeerWatch::note_end() {
  if (!is_watching_) {
    return;
  }
  stop_watching();
  groups_.notify_all([rank = peer_.rank](Links& links) { links.note_death(rank); });
}

void PeerWatch::stop_watching() {
  is_watching_ = false;
  loop_.remove(peer_.socket.get());
  if (process_.is_open()) {
    loop_.remove(process_.get());
  }
}

}  // namespace unisono::comm
