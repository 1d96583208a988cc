#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono::data {

/// The samples of each batch of a pass. No batch is empty.
struct BatchPlan {
  std::vector<std::int64_t> indices;  ///< Samples of all batches, in order.
  std::vector<std::size_t> ends;      ///< End of each batch in `indices`.

  [[nodiscard]] std::int64_t n_batches() const { return static_cast<std::int64_t>(ends.size()); }

  /// Returns the samples of batch `number`, counted from 0.
  [[nodiscard]] std::span<const std::int64_t> batch(std::int64_t number) const;
};

/// Cuts `indices` into batches of `batch_size`. With `drop_last` a smaller last batch is left out.
[[nodiscard]] BatchPlan plan_batches(std::vector<std::int64_t> indices,
                                     std::int64_t batch_size,
                                     bool drop_last);

/// Returns a plan with the given batches.
[[nodiscard]] BatchPlan plan_batches(const std::vector<std::vector<std::int64_t>>& batches);

/// Returns a hash that is equal for equal plans, on every machine.
[[nodiscard]] std::uint64_t hash_of(const BatchPlan& plan);

/// A pass over a data set that begins with batch `first_batch`. Shared by the queue and the jobs of
/// the workers.
struct Pass {
  Pass(BatchPlan batches, std::int64_t first) : plan(std::move(batches)), first_batch(first) {}

  const BatchPlan plan;
  const std::int64_t first_batch;
  /// True if the rest of the pass is not needed. The consumer sets the flag, and workers read it
  /// between samples. Relaxed, because the flag publishes no other data.
  std::atomic<bool> abandoned = false;
};

/// Reason for which a batch could not be loaded. Kept as a value until the consumer requests the
/// batch.
struct LoadFailure {
  ErrorCode code;
  std::string message;
};

/// A batch of the loader's type, or the reason for which there is no batch.
using LoadResult = std::variant<std::shared_ptr<void>, LoadFailure>;

/// A batch to load. Shares the pass with the queue, which may meanwhile change to another pass.
struct LoadJob {
  std::shared_ptr<const Pass> pass;
  std::int64_t batch = 0;
};

/// Distributes the batches of a pass to workers in order, and passes the results to the consumer in
/// order. Workers may deliver in any order, at most `window` batches ahead of the consumer.
///
/// The loader owns the object, which must outlive the workers. Thread-safe, with a single consumer.
/// The failure of a batch is a LoadResult, not an exception.
class PrefetchQueue {
 public:
  /// `window` is the largest number of batches ahead of the consumer, at least 1.
  explicit PrefetchQueue(std::int64_t window);

  /// Consumer: begins `pass` and abandons the last pass.
  void start(std::shared_ptr<Pass> pass);

  /// Consumer: returns the next batch, or the failure after fail(). Returns std::nullopt if the
  /// deadline passes first.
  [[nodiscard]] std::optional<LoadResult> take_result(Deadline deadline);

  /// Worker: waits until a batch may be loaded and returns the job; std::nullopt after close().
  [[nodiscard]] std::optional<LoadJob> take_job();

  /// Worker: delivers the result of `job`. The result is dropped if the pass of the job has ended.
  void deliver(const LoadJob& job, LoadResult result);

  /// Worker: no worker can continue; the consumer receives `failure` from now on.
  void fail(LoadFailure failure);

  /// Consumer: abandons the pass and makes take_job() return std::nullopt, so that the workers end.
  void close();

 private:
  [[nodiscard]] bool has_job() const UNISONO_REQUIRES(mutex_);
  [[nodiscard]] std::optional<LoadResult>& slot(std::int64_t batch) UNISONO_REQUIRES(mutex_);

  const std::int64_t window_;
  Mutex mutex_;
  Condition job_;     // signaled when a worker may find a job, and by close()
  Condition result_;  // signaled when the consumer may find the next result
  bool closed_ UNISONO_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Pass> pass_ UNISONO_GUARDED_BY(mutex_);
  std::int64_t next_job_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::int64_t next_result_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::optional<LoadFailure> failure_ UNISONO_GUARDED_BY(mutex_);
  // The result of batch b is in slots_[b % window_]. A slot never has two results, because no job
  // is more than window_ batches ahead.
  std::vector<std::optional<LoadResult>> slots_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::data
