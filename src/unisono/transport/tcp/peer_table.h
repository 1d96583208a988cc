#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/dialer.h"

namespace unisono::tcp {

/// What one group's rank has with each rank of another node, made of the stream to it: a Connection
/// for operations, or a PacketStream for messages.
template <class Peer>
class PeerTable final : public Dialer {
 public:
  /// `name` stands for the rank in errors.
  using MakePeer = std::function<std::unique_ptr<Peer>(
      int rank, const std::string& name, std::unique_ptr<transport::Stream> stream)>;

  PeerTable(DialerParts parts, MakePeer make_peer)
      : Dialer(std::move(parts)), make_peer_(std::move(make_peer)) {}

  /// Null until there is a stream.
  [[nodiscard]] Peer* find(int rank) const {
    const auto found = peers_.find(rank);
    return found == peers_.end() ? nullptr : found->second.get();
  }

  /// All that exist.
  [[nodiscard]] std::vector<Peer*> peers() const {
    std::vector<Peer*> peers;
    for (const auto& [rank, peer] : peers_) {
      peers.push_back(peer.get());
    }
    return peers;
  }

  /// Tells the other ranks, also those that this one never talked to, why its group failed. Only
  /// the first call does.
  void abort(const Error& reason) noexcept {
    if (std::exchange(has_aborted_, true)) {
      return;
    }
    try_to([this] { (void)this->progress(); });
    for (const auto& [rank, peer] : peers_) {
      peer->frames().abort(reason);
    }
  }

  [[nodiscard]] bool has_aborted() const { return has_aborted_; }

  /// Tells them that this rank leaves in good order, unless it has aborted. Later connections are
  /// refused: their ranks would take an end without a leave frame for a death.
  void leave() noexcept {
    try_to([this] {
      this->close_door();
      if (!has_aborted_) {
        // Those that have become needless: one that breaks off looks like a stranger's.
        this->finish_dials(Deadline::after(kLinger));
      }
    });
    for (const auto& [rank, peer] : peers_) {
      if (!has_aborted_) {
        peer->frames().say_goodbye();
      }
    }
    const Deadline deadline =
        Deadline::after(has_aborted_ ? kLinger : std::chrono::milliseconds::zero());
    for (const auto& [rank, peer] : peers_) {
      peer->frames().linger(deadline);
    }
  }

  /// Ends all connections. Nobody delivers any more.
  void close() {
    peers_.clear();
    drop_all();
  }

 private:
  // Time for the peers to read why this rank gave up, or to turn away what is needless.
  static constexpr std::chrono::milliseconds kLinger{250};

  template <class Action>
  static void try_to(Action action) noexcept {
    try {
      action();
    } catch (const std::exception&) {
      return;  // One can't be reached, say: it can't be told.
    }
  }

  void adopt(int rank, std::unique_ptr<transport::Stream> stream) override {
    peers_[rank] = make_peer_(rank, member(rank).name, std::move(stream));
  }

  MakePeer make_peer_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  bool has_aborted_ = false;
};

}  // namespace unisono::tcp
