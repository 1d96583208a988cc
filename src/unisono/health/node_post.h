#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/health/control_link.h"
#include "unisono/net/event_loop.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {

/// Name of the socket by which control frames reach the rank whose roster entry has `endpoint`.
[[nodiscard]] std::string post_name(const std::string& endpoint);

/// Control frames between the ranks of a node, by one datagram socket for each rank: nothing is
/// opened for a pair of ranks. A datagram is taken from processes of this user that know the key of
/// the node's memory. Never blocks. Belongs to the event loop's thread.
class NodePost {
 public:
  struct Callbacks {
    /// False for a frame that no correct rank sends.
    std::function<bool(int rank, const transport::Frame& frame, std::span<const std::byte> payload)>
        frame;
    /// A rank has sent a datagram that is not such a frame.
    std::function<void(int rank)> junk;
    /// The rank's socket is closed.
    std::function<void(int rank)> unreachable;
  };

  /// `socket` has the name that post_name() gives this rank. The loop outlives it.
  NodePost(net::EventLoop& loop,
           Fd socket,
           const shm::NodeMemory::Key& key,
           const rendezvous::Roster& roster,
           Callbacks callbacks);
  ~NodePost();

  NodePost(const NodePost&) = delete;
  NodePost& operator=(const NodePost&) = delete;
  NodePost(NodePost&&) = delete;
  NodePost& operator=(NodePost&&) = delete;

  /// Sends a frame to a rank of the node, at once where the rank's queue has room. Dropped where
  /// hundreds wait before it.
  void send(int rank, Parcel parcel);

  /// Takes all that has come.
  void read_all();

 private:
  enum class Sent { kDone, kQueueFull, kUnreachable };

  void read(int most);
  void take(std::span<const std::byte> datagram);
  [[nodiscard]] Sent try_send(int rank, const Parcel& parcel);
  void flush();
  void flush_later();

  net::EventLoop& loop_;
  Fd socket_;
  Callbacks callbacks_;
  // Before each frame: the key, and this rank.
  std::array<std::byte, sizeof(shm::NodeMemory::Key) + sizeof(std::int32_t)> envelope_{};
  std::map<int, std::string> names_;            // By rank of the job.
  std::map<int, std::vector<Parcel>> waiting_;  // For room in the queue of a rank.
  net::EventLoop::TimerId timer_ = 0;
};

}  // namespace unisono::health
