#include "unisono/comm/peer_watch.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/engine/native/rank_status.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/io.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/frame.h"

namespace unisono::comm {
namespace {

// Readable once the process has ended. Not open where the kernel does not tell.
Fd open_process(std::int64_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

}  // namespace

PeerWatch::PeerWatch(net::EventLoop& loop,
                     const shm::NodePeer& peer,
                     const rendezvous::Roster& roster,
                     engine::RankStatus& ranks,
                     transport::Failure& failure,
                     std::function<void()> wake)
    : loop_(loop), peer_(peer), ranks_(ranks), failure_(failure), wake_(std::move(wake)) {
  loop_.add(peer_.socket.get(), EPOLLIN, [this](std::uint32_t) { read_socket(); });
  // A child of the peer may hold the socket open beyond its death; its process tells anyway.
  const std::int64_t pid = roster.members[static_cast<std::size_t>(peer.rank)].pid;
  if (pid != ::getpid()) {
    process_ = open_process(pid);
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
    if (!frame || (frame->kind != tcp::FrameKind::kAbort && frame->kind != tcp::FrameKind::kBye)) {
      failure_.set(Error(
          ErrorCode::kCorruptData,
          fmt::format(
              "{} {} sent bytes that are no frame", ranks_.prefix(), ranks_.describe(peer_.rank))));
      stop_watching();
      return;
    }
    const std::size_t size = tcp::kFrameBytes + frame->n_bytes;
    if (received_.size() < size) {
      return;
    }
    if (frame->kind == tcp::FrameKind::kBye) {
      has_left_ = true;
      ranks_.note_departure(peer_.rank);
      wake_();
    } else {
      const auto text = std::span(received_).subspan(tcp::kFrameBytes, frame->n_bytes);
      failure_.set(
          tcp::decode_abort(*frame, text, ranks_.prefix() + " " + ranks_.describe(peer_.rank)));
    }
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(size));
  }
}

void PeerWatch::note_end() {
  if (!is_watching_) {
    return;
  }
  stop_watching();
  if (!has_left_) {
    failure_.set(
        Error(ErrorCode::kPeerLost,
              fmt::format(
                  "{} {} is gone: its process ended without leaving the group (killed, or crashed)",
                  ranks_.prefix(),
                  ranks_.describe(peer_.rank))));
  }
}

void PeerWatch::stop_watching() {
  is_watching_ = false;
  loop_.remove(peer_.socket.get());
  if (process_.is_open()) {
    loop_.remove(process_.get());
  }
}

}  // namespace unisono::comm
