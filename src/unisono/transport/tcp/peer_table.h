#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

  /// Ends all connections. Nobody delivers any more.
  void close() {
    peers_.clear();
    drop_all();
  }

 private:
  void adopt(int rank, std::unique_ptr<transport::Stream> stream) override {
    peers_[rank] = make_peer_(rank, member(rank).name, std::move(stream));
  }

  MakePeer make_peer_;
  std::map<int, std::unique_ptr<Peer>> peers_;
};

}  // namespace unisono::tcp
