#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/data/pass.h"

namespace unisono::data {

/// Why a batch could not be loaded. Kept as a value until the consumer asks for the batch.
struct LoadFailure {
  ErrorCode code;
  std::string message;
};

/// A batch of whatever type the loader makes, or why there is none.
using LoadResult = std::variant<std::shared_ptr<void>, LoadFailure>;

/// One batch to load; shares the pass with the queue, which may go on to another one meanwhile.
struct LoadJob {
  std::shared_ptr<const Pass> pass;
  std::int64_t batch = 0;
};

/// Hands a pass's batches to workers in order and takes the results in any order, at most `window`
/// batches ahead of the consumer, who gets them in order. Thread-safe, with one consumer.
class PrefetchQueue {
 public:
  explicit PrefetchQueue(std::int64_t window);

  /// Consumer: replaces the pass, if there is one, which is abandoned.
  void start(std::shared_ptr<Pass> pass);

  /// Consumer: the next batch. Nothing when the deadline passed, kClosed after fail().
  [[nodiscard]] std::optional<LoadResult> take_result(Deadline deadline);

  /// Worker: the next batch to load, when there is room for it; nothing after close().
  [[nodiscard]] std::optional<LoadJob> take_job();

  /// Worker: brings the result of `job`; it is dropped when the job's pass is over.
  void deliver(const LoadJob& job, LoadResult result);

  /// Worker: no worker will go on; the consumer gets `failure` from now on.
  void fail(LoadFailure failure);

  /// Consumer: abandons the pass and sends the workers home.
  void close();

 private:
  [[nodiscard]] bool has_job() const UNISONO_REQUIRES(mutex_);
  [[nodiscard]] std::optional<LoadResult>& slot(std::int64_t batch) UNISONO_REQUIRES(mutex_);

  const std::int64_t window_;
  Mutex mutex_;
  Condition job_;     // a worker may find a job, or must go home
  Condition result_;  // the consumer may find its result
  bool closed_ UNISONO_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Pass> pass_ UNISONO_GUARDED_BY(mutex_);
  std::int64_t next_job_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::int64_t next_result_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::optional<LoadFailure> failure_ UNISONO_GUARDED_BY(mutex_);
  // Result of batch b is in slots_[b % window_]: never two at once, as no job is handed out that
  // is more than window_ ahead.
  std::vector<std::optional<LoadResult>> slots_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::data
