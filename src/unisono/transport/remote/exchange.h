#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "unisono/transport/remote/connection.h"
#include "unisono/transport/remote/peer_table.h"
#include "unisono/transport/traffic.h"
#include "unisono/transport/wait.h"

namespace unisono::tcp {

/// Data for a rank of another node.
struct Outgoing {
  int rank;
  std::span<const std::byte> data;
  /// In operations with blocks of any size: bytes that the same rank is to send in return.
  std::uint64_t n_bytes_back = 0;
};

/// Memory for data from a rank of another node, of exactly the data's size.
struct Incoming {
  int rank;
  std::span<std::byte> data;
};

/// The transfers of an operation between nodes. Data between two ranks arrives in the order of the
/// sends, so a rank posts receives in the order of the peer's sends.
///
/// Lives for a single operation; used by the thread that drives the group. run() blocks and throws
/// the errors.
class Exchange {
 public:
  /// `table` holds the connections and opens missing connections. `traffic` counts the transferred
  /// bytes.
  Exchange(PeerTable<Connection>& table,
           transport::TrafficCounters& traffic,
           const OperationTag& tag,
           transport::WaitMonitor& wait_monitor)
      : table_(table), traffic_(traffic), tag_(tag), wait_monitor_(wait_monitor) {}

  /// Returns the ranks that the operation waits for.
  using LateRanks = std::function<std::vector<int>()>;

  /// Performs all sends and receives concurrently; blocks until all are complete. All missing
  /// connections are opened at once, so each rank receives aborts from all ranks that have
  /// connected and waits for all others. Without `late_ranks` the operation waits for
  /// unmet_ranks().
  ///
  /// Throws the errors of Connection::progress(), PeerTable::progress() and `wait_monitor`.
  void run(std::span<const Outgoing> sends,
           std::span<const Incoming> receives,
           const LateRanks* late_ranks = nullptr);

  /// Returns the ranks with incomplete transfers.
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
  // Arguments of the current run().
  std::span<const Outgoing> sends_;
  std::span<const Incoming> receives_;
  const LateRanks* late_ranks_ = nullptr;
};

}  // namespace unisono::tcp
