#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/peer_table.h"
#include "unisono/transport/traffic.h"
#include "unisono/transport/wait_monitor.h"

namespace unisono::tcp {

/// A message to a rank of another node.
struct Outgoing {
  int rank;
  std::span<const std::byte> data;
  /// Where blocks are of any size: what the same rank is to give in turn.
  std::uint64_t n_bytes_back = 0;
};

/// Memory for a message from a rank of another node, of just its size.
struct Incoming {
  int rank;
  std::span<std::byte> data;
};

/// The transfers of one operation between nodes. Messages between two ranks arrive in the order
/// they were sent; a rank posts its receives in the order of its peer's sends.
class Exchange {
 public:
  /// `table` has the connections, and opens those that are missing; `traffic` counts what goes
  /// through them.
  Exchange(PeerTable<Connection>& table,
           transport::TrafficCounters& traffic,
           const OperationTag& tag,
           transport::WaitMonitor& wait_monitor)
      : table_(table), traffic_(traffic), tag_(tag), wait_monitor_(wait_monitor) {}

  /// Names the ranks that the operation waits for.
  using LateRanks = std::function<std::vector<int>()>;

  /// Sends and receives all of it, at the same time. Connections that are missing are opened all at
  /// once, so that each rank hears of all that have come, and waits for all that have not. Without
  /// `late_ranks` it waits for unmet_ranks().
  ///
  /// Throws what Connection::progress(), PeerTable::progress() and `wait_monitor` throw.
  void run(std::span<const Outgoing> sends,
           std::span<const Incoming> receives,
           const LateRanks* late_ranks = nullptr);

  /// The ranks with which this one has not done yet.
  [[nodiscard]] std::vector<int> unmet_ranks() const;

 private:
  void begin_with(int rank);
  void post(Connection& connection);
  bool post_to_who_came();
  void move_all();
  void wait();

  PeerTable<Connection>& table_;
  transport::TrafficCounters& traffic_;
  OperationTag tag_;
  transport::WaitMonitor& wait_monitor_;
  std::vector<Connection*> connections_;
  std::vector<int> awaited_;  // Ranks to which there is no connection yet.
  // Of this run.
  std::span<const Outgoing> sends_;
  std::span<const Incoming> receives_;
  const LateRanks* late_ranks_ = nullptr;
};

}  // namespace unisono::tcp
