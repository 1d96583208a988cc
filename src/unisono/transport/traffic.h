#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/transport/rank_table.h"

namespace unisono::transport {

/// Traffic counters by rank. A single thread counts; any thread may call read().
class TrafficCounters {
 public:
  /// All counters start at 0.
  explicit TrafficCounters(std::size_t world_size) : counters_(world_size) {}

  /// Adds payload bytes sent to a rank.
  void count_sent(int rank, std::size_t n_bytes) { add(at(rank).sent, n_bytes); }

  /// Adds payload bytes received from a rank.
  void count_received(int rank, std::size_t n_bytes) { add(at(rank).received, n_bytes); }

  /// Returns the counters of each rank.
  [[nodiscard]] std::vector<RankTraffic> read() const {
    std::vector<RankTraffic> traffic;
    for (const Counter& counter : counters_) {
      traffic.push_back({.sent_bytes = counter.sent.load(std::memory_order_relaxed),
                         .received_bytes = counter.received.load(std::memory_order_relaxed)});
    }
    return traffic;
  }

 private:
  struct Counter {
    std::atomic<std::int64_t> sent = 0;
    std::atomic<std::int64_t> received = 0;
  };

  Counter& at(int rank) { return counters_[static_cast<std::size_t>(rank)]; }

  static void add(std::atomic<std::int64_t>& counter, std::size_t n_bytes) {
    counter.fetch_add(static_cast<std::int64_t>(n_bytes), std::memory_order_relaxed);
  }

  std::vector<Counter> counters_;
};

}  // namespace unisono::transport
