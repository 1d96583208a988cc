#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {

/// Sees the ranks of a node end. Each rank watches the next two that are still in the job, in a
/// ring, and tells the others of an end: so a rank watches two, however many the node has, and the
/// end of a rank is seen while one that watches it is stopped. Belongs to the event loop's thread.
///
/// A rank's end shows in two ways. Its process ends, by its pidfd. And the Unix socket at which it
/// has listened closes, which hangs up a connection to it that it never accepts: also where the
/// process goes on without the job (another program by exec, a failed start), and where the kernel
/// has no pidfd. A child by clone() may hold the socket open.
class NodeWatch {
 public:
  /// Receives a rank of the node that is no longer in the job. `is_news`: the rank has ended
  /// without leaving, and no other rank has seen that before.
  using NoteEnd = std::function<void(int rank, bool is_news)>;

  /// The loop outlives it.
  NodeWatch(net::EventLoop& loop,
            const rendezvous::Roster& roster,
            shm::NodeMemory memory,
            NoteEnd note_end);
  ~NodeWatch();

  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;
  NodeWatch(NodeWatch&&) = delete;
  NodeWatch& operator=(NodeWatch&&) = delete;

  /// Begins. To be called once.
  void start() { watch_next(); }

 private:
  // The descriptors that show a rank's end.
  struct Watched {
    Fd connection;
    Fd process;
  };

  void watch_next();
  // Nothing where the rank has ended.
  [[nodiscard]] std::optional<Watched> open(const rendezvous::Member& member) const;
  void add(Fd& fd, std::uint32_t events, std::size_t index);
  void unwatch(const Watched& watched);
  void note(std::size_t index);

  net::EventLoop& loop_;
  std::vector<rendezvous::Member> members_;  // Of the node, in order.
  std::size_t self_ = 0;                     // In these.
  shm::NodeMemory memory_;
  NoteEnd note_end_;
  std::map<std::size_t, Watched> watched_;
};

}  // namespace unisono::health
