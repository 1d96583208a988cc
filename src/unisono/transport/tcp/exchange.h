#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/opening.h"
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
  /// Throws what Mesh::connection() throws.
  Exchange(Mesh& mesh, const OperationTag& tag, transport::WaitMonitor& wait_monitor)
      : mesh_(mesh), tag_(tag), wait_monitor_(wait_monitor) {}

  /// Sends and receives all of it, at the same time.
  ///
  /// Throws what Connection::progress() and `patience` throw.
  void run(std::span<const Outgoing> sends, std::span<const Incoming> receives);

  /// Names more ranks that the operation waits for.
  using AlsoLate = std::function<std::vector<int>()>;

  /// Sends an empty message to each of `ranks` and receives one. Connections are opened all at the
  /// same time, so that each rank hears of all that have come, and waits for all that have not.
  ///
  /// Throws what run() throws.
  void meet(std::span<const int> ranks, const AlsoLate& also_late);

 private:
  // A rank to which there is no connection yet.
  struct Awaited {
    int rank;
    std::unique_ptr<Opening> opening;
  };

  Connection& connection(int rank);
  void greet(Connection& connection);
  bool greet_who_came();
  void move_all();
  void wait();
  [[nodiscard]] std::vector<int> late_ranks() const;

  Mesh& mesh_;
  OperationTag tag_;
  transport::WaitMonitor& wait_monitor_;
  std::vector<Connection*> connections_;
  std::vector<Awaited> awaited_;
  const AlsoLate* also_late_ = nullptr;
};

}  // namespace unisono::tcp
