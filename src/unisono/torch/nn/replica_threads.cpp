#include "unisono/torch/nn/replica_threads.h"

#include <algorithm>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include "unisono/base/error.h"
#include "unisono/base/thread.h"

namespace unisono::nn {

ReplicaThreads::ReplicaThreads(std::size_t n_threads) : failures_(n_threads) {
  const int n_compute_threads = at::get_num_threads();
  try {
    start(n_threads, std::max(1, n_compute_threads / static_cast<int>(n_threads)));
  } catch (...) {
    end();
    throw;
  }
  // set_num_threads() in a thread also changes the default of future threads, so the caller's
  // number is restored.
  at::set_num_threads(n_compute_threads);
}

ReplicaThreads::~ReplicaThreads() {
  end();
}

void ReplicaThreads::start(std::size_t n_threads, int n_compute_threads) {
  {
    const MutexLock lock(mutex_);
    n_running_ = n_threads;
  }
  for (std::size_t i = 0; i < n_threads; ++i) {
    threads_.push_back(start_thread("uni-replica",
                                    "DataParallel can't start a thread",
                                    [this, i, n_compute_threads] { work(i, n_compute_threads); }));
  }
  await_all();
}

void ReplicaThreads::end() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ReplicaThreads::await_all() {
  const MutexLock lock(mutex_);
  while (n_running_ > 0) {
    done_.wait(mutex_);
  }
}

void ReplicaThreads::work(std::size_t index, int n_compute_threads) {
  // The first call initializes the number; a later first call would overwrite the value set below.
  (void)at::get_num_threads();
  at::set_num_threads(n_compute_threads);
  std::uint64_t n_done = 0;
  mutex_.lock();
  while (true) {
    if (--n_running_ == 0) {
      done_.notify_one();
    }
    while (n_rounds_ == n_done && !is_ending_) {
      wake_.wait(mutex_);
    }
    if (is_ending_) {
      mutex_.unlock();
      return;
    }
    n_done = n_rounds_;
    const std::function<void(std::size_t)>* const task = index < n_tasks_ ? task_ : nullptr;
    mutex_.unlock();
    try {
      if (task != nullptr) {
        (*task)(index);
      }
    } catch (...) {
      failures_[index] = std::current_exception();
    }
    mutex_.lock();
  }
}

void ReplicaThreads::run(std::size_t n_tasks, const std::function<void(std::size_t)>& task) {
  const at::ThreadLocalState state;
  const std::function<void(std::size_t)> with_state = [&](std::size_t replica) {
    const at::ThreadLocalStateGuard guard(state);
    task(replica);
  };
  {
    const MutexLock lock(mutex_);
    std::ranges::fill(failures_, nullptr);
    task_ = &with_state;
    n_tasks_ = n_tasks;
    n_running_ = threads_.size();
    ++n_rounds_;
  }
  wake_.notify_all();
  await_all();
  for (std::size_t replica = 0; replica < n_tasks; ++replica) {
    if (failures_[replica]) {
      explain_failure(replica);
    }
  }
}

void ReplicaThreads::explain_failure(std::size_t replica) const {
  const std::string who = "DataParallel: replica " + std::to_string(replica) + " of " +
                          std::to_string(threads_.size()) + ": ";
  try {
    std::rethrow_exception(failures_[replica]);
  } catch (const Error& error) {
    throw Error(error.code(), who + error.what());
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, who + error_text(error));
  }
}

}  // namespace unisono::nn
