#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"

namespace unisono::nn {

/// A thread for each replica of a module, each with its share of the compute threads. They sleep
/// between passes.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(std::size_t n_threads);
  ~ReplicaThreads();

  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;
  ReplicaThreads(ReplicaThreads&&) = delete;
  ReplicaThreads& operator=(ReplicaThreads&&) = delete;

  [[nodiscard]] std::size_t size() const { return threads_.size(); }

  /// Calls task(i) for i from 0 up to `n_tasks`, on thread i, with the caller's thread-local state
  /// of LibTorch (gradients on or off, autocast). Returns when all are done.
  ///
  /// Throws Error with the number of the first replica that failed, and what it says. Not
  /// thread-safe, and not to be called by a task.
  void run(std::size_t n_tasks, const std::function<void(std::size_t)>& task);

 private:
  void start(std::size_t n_threads, int n_compute_threads);
  void end();
  void await_all();
  void work(std::size_t index, int n_compute_threads);
  [[noreturn]] void explain_failure(std::size_t replica) const;

  Mutex mutex_;
  Condition wake_;  // something to do, or the end
  Condition done_;
  const std::function<void(std::size_t)>* task_ UNISONO_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t n_rounds_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::size_t n_tasks_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::size_t n_running_ UNISONO_GUARDED_BY(mutex_) = 0;
  bool is_ending_ UNISONO_GUARDED_BY(mutex_) = false;
  std::vector<std::exception_ptr> failures_;  // each written by its thread, read when all are done
  std::vector<std::thread> threads_;
};

}  // namespace unisono::nn
