#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"
#include "unisono/peers/control_link.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::peers {

/// Returns the name of the socket that receives control frames for the rank with `endpoint` in its
/// roster entry.
[[nodiscard]] std::string post_name(const std::string& endpoint);

/// Exchanges control frames between the ranks of a node, with a single datagram socket for each
/// rank: a pair of ranks opens no connection. Accepts datagrams only from processes of this user
/// that have the key of the node's memory.
///
/// Owned by ControlPlane and, for a short time, by replies; used only by the event loop's thread.
/// Never blocks.
class NodePost {
 public:
  struct Callbacks {
    /// Handles a frame. Returns false for a frame that no correct rank sends.
    std::function<bool(int rank, const transport::Frame& frame, std::span<const std::byte> payload)>
        frame;
    /// A rank has sent an incorrect datagram.
    std::function<void(int rank)> junk;
    /// The rank's socket is closed.
    std::function<void(int rank)> unreachable;
  };

  /// `socket` has the name that post_name() returns for this rank. The loop must outlive the
  /// object.
  NodePost(net::EventLoop& loop,
           Fd socket,
           const shm::NodeMemory::Key& key,
           const transport::RankTable& roster,
           Callbacks callbacks);
  ~NodePost();

  NodePost(const NodePost&) = delete;
  NodePost& operator=(const NodePost&) = delete;
  NodePost(NodePost&&) = delete;
  NodePost& operator=(NodePost&&) = delete;

  /// Sends a frame to a rank of the node, at once if the rank's queue has room. Drops the frame if
  /// hundreds of frames wait.
  void send(int rank, OutgoingFrame parcel);

  /// Reads all received datagrams.
  void read_all();

 private:
  enum class Sent { kDone, kQueueFull, kUnreachable };

  void read(int most);
  void take(std::span<const std::byte> datagram);
  [[nodiscard]] Sent try_send(int rank, const OutgoingFrame& parcel);
  void flush();
  void flush_later();

  net::EventLoop& loop_;
  Fd socket_;
  Callbacks callbacks_;
  // Prefix of each frame: the key, and this rank.
  std::array<std::byte, sizeof(shm::NodeMemory::Key) + sizeof(std::int32_t)> envelope_{};
  std::map<int, std::string> names_;  // Indexed by rank of the job.
  // Frames that wait for room in a rank's queue.
  std::map<int, std::vector<OutgoingFrame>> waiting_;
  net::EventLoop::TimerId timer_ = 0;
};

/// Detects the end of ranks of a node. Each rank watches the next two ranks that are still in the
/// job, in a ring, and reports an end to the others. A rank thus watches only two ranks, whatever
/// the size of the node, and an end is detected even if a watcher is stopped.
///
/// There are two signs of a rank's end. The rank's process ends, according to a pidfd. And the Unix
/// socket at which the rank listens closes, which hangs up a connection that the rank never
/// accepts: also if the process continues without the job (another program by exec, a failed
/// start), and if the kernel has no pidfd. A child by clone() may hold the socket open.
///
/// Owned by PeerMonitor; used only by the event loop's thread.
class NodeWatch {
 public:
  /// Receives a rank of the node that is no longer in the job. `is_news`: the rank has ended
  /// without leaving, and no other rank has detected this before.
  using NoteEnd = std::function<void(int rank, bool is_news)>;

  /// The loop must outlive the object.
  NodeWatch(net::EventLoop& loop,
            const transport::RankTable& roster,
            shm::NodeMemory memory,
            NoteEnd note_end);
  ~NodeWatch();

  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;
  NodeWatch(NodeWatch&&) = delete;
  NodeWatch& operator=(NodeWatch&&) = delete;

  /// Starts watching. Call once.
  void start() { watch_next(); }

 private:
  // The descriptors that show a rank's end.
  struct Watched {
    Fd connection;
    Fd process;
  };

  void watch_next();
  // Returns std::nullopt if the rank has ended.
  [[nodiscard]] std::optional<Watched> open(const transport::Member& member) const;
  void add(Fd& fd, std::uint32_t events, std::size_t index);
  void unwatch(const Watched& watched);
  void note(std::size_t index);

  net::EventLoop& loop_;
  std::vector<transport::Member> members_;  // Members on this node, in order.
  std::size_t self_ = 0;                    // Index of this rank in members_.
  shm::NodeMemory memory_;
  NoteEnd note_end_;
  std::map<std::size_t, Watched> watched_;
};

}  // namespace unisono::peers
