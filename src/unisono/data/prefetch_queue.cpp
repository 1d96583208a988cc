#include "unisono/data/prefetch_queue.h"

#include <algorithm>

#include "unisono/base/bytes.h"

namespace unisono::data {

std::span<const std::int64_t> BatchPlan::batch(std::int64_t number) const {
  const auto at = static_cast<std::size_t>(number);
  const std::size_t start = at == 0 ? 0 : ends[at - 1];
  return std::span(indices).subspan(start, ends[at] - start);
}

BatchPlan plan_batches(std::vector<std::int64_t> indices, std::int64_t batch_size, bool drop_last) {
  const auto n_full = static_cast<std::size_t>(batch_size);
  BatchPlan plan{.indices = std::move(indices), .ends = {}};
  std::size_t end = 0;
  while (end < plan.indices.size()) {
    const std::size_t n_left = plan.indices.size() - end;
    if (n_left < n_full && drop_last) {
      break;
    }
    end += std::min(n_full, n_left);
    plan.ends.push_back(end);
  }
  return plan;
}

BatchPlan plan_batches(const std::vector<std::vector<std::int64_t>>& batches) {
  BatchPlan plan;
  for (const std::vector<std::int64_t>& batch : batches) {
    plan.indices.insert(plan.indices.end(), batch.begin(), batch.end());
    plan.ends.push_back(plan.indices.size());
  }
  return plan;
}

std::uint64_t hash_of(const BatchPlan& plan) {
  std::uint64_t hash = kFnvStart;
  for (const std::int64_t index : plan.indices) {
    hash = fnv_step(hash, static_cast<std::uint64_t>(index));
  }
  for (const std::size_t end : plan.ends) {
    hash = fnv_step(hash, end);
  }
  return hash;
}

PrefetchQueue::PrefetchQueue(std::int64_t window)
    : window_(window), slots_(static_cast<std::size_t>(window)) {}

void PrefetchQueue::start(std::shared_ptr<Pass> pass) {
  // Declared first, so that batches of the old pass return to their pool after the lock is
  // released.
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
