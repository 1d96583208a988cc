#include "unisono/data/prefetch_queue.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/data/pass.h"

namespace unisono::data {

PrefetchQueue::PrefetchQueue(std::int64_t window)
    : window_(window), slots_(static_cast<std::size_t>(window)) {}

void PrefetchQueue::start(std::shared_ptr<Pass> pass) {
  // Declared first, so that batches of the old pass go back to their pool after the lock is gone.
  std::vector<std::optional<LoadResult>> old_slots(static_cast<std::size_t>(window_));
  const MutexLock lock(mutex_);
  if (pass_ != nullptr) {
    pass_->abandoned.store(true, std::memory_order_relaxed);
  }
  pass_ = std::move(pass);
  next_job_ = pass_->first_batch;
  next_result_ = pass_->first_batch;
  slots_.swap(old_slots);
  job_.notify_all();
}

std::optional<LoadResult> PrefetchQueue::take_result(Deadline deadline) {
  const MutexLock lock(mutex_);
  std::optional<LoadResult>& result = slot(next_result_);
  while (!failure_ && !result) {
    if (deadline.has_passed()) {
      return std::nullopt;
    }
    result_.wait_until(mutex_, deadline.time());
  }
  if (failure_) {
    return *failure_;
  }
  ++next_result_;
  job_.notify_one();
  return std::exchange(result, std::nullopt);
}

std::optional<LoadJob> PrefetchQueue::take_job() {
  const MutexLock lock(mutex_);
  while (!closed_ && !has_job()) {
    job_.wait(mutex_);
  }
  if (closed_) {
    return std::nullopt;
  }
  return LoadJob{.pass = pass_, .batch = next_job_++};
}

void PrefetchQueue::deliver(const LoadJob& job, LoadResult result) {
  const MutexLock lock(mutex_);
  if (job.pass != pass_ || closed_) {
    return;
  }
  slot(job.batch) = std::move(result);
  if (job.batch == next_result_) {
    result_.notify_one();
  }
}

void PrefetchQueue::fail(LoadFailure failure) {
  const MutexLock lock(mutex_);
  if (!failure_) {
    failure_ = std::move(failure);
  }
  result_.notify_one();
}

void PrefetchQueue::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  if (pass_ != nullptr) {
    pass_->abandoned.store(true, std::memory_order_relaxed);
  }
  job_.notify_all();
}

bool PrefetchQueue::has_job() const {
  return pass_ != nullptr && !pass_->abandoned.load(std::memory_order_relaxed) &&
         next_job_ < std::min(pass_->plan.n_batches(), next_result_ + window_);
}

std::optional<LoadResult>& PrefetchQueue::slot(std::int64_t batch) {
  return slots_[static_cast<std::size_t>(batch % window_)];
}

}  // namespace unisono::data
