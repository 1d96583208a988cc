#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace unisono::data {

/// Which samples make which batch of a pass. No batch is empty.
struct BatchPlan {
  std::vector<std::int64_t> indices;  ///< Batch after batch.
  std::vector<std::size_t> ends;      ///< Of each batch, in `indices`.

  [[nodiscard]] std::int64_t n_batches() const { return static_cast<std::int64_t>(ends.size()); }

  [[nodiscard]] std::span<const std::int64_t> batch(std::int64_t number) const;
};

/// Batches of `batch_size`; the last one may be smaller, or is left out.
[[nodiscard]] BatchPlan plan_batches(std::vector<std::int64_t> indices,
                                     std::int64_t batch_size,
                                     bool drop_last);

[[nodiscard]] BatchPlan plan_batches(const std::vector<std::vector<std::int64_t>>& batches);

/// Equal for equal plans, and on every machine.
[[nodiscard]] std::uint64_t hash_of(const BatchPlan& plan);

/// One pass over a data set, from a batch on.
struct Pass {
  Pass(BatchPlan batches, std::int64_t first) : plan(std::move(batches)), first_batch(first) {}

  const BatchPlan plan;
  const std::int64_t first_batch;
  /// Nobody wants the rest. Set by the consumer, read by workers between samples; relaxed, since
  /// nothing is handed over by it.
  std::atomic<bool> abandoned = false;
};

}  // namespace unisono::data
