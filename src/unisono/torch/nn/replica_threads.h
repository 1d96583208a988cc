#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"

namespace unisono::nn {

/// One thread per replica of a module, each with a share of the compute threads. The threads sleep
/// between passes. Shared by a ReplicaSet and pending backward passes; the destructor joins the
/// threads.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(std::size_t n_threads);
  ~ReplicaThreads();

  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;
  ReplicaThreads(ReplicaThreads&&) = delete;
  ReplicaThreads& operator=(ReplicaThreads&&) = delete;

  [[nodiscard]] std::size_t size() const { return threads_.size(); }

  /// Calls task(i) on thread i for i from 0 to n_tasks - 1, with the caller's thread-local state of
  /// LibTorch (gradient mode, autocast). Returns when all tasks are done.
  ///
  /// Throws Error with the number and the message of the first replica that failed. Not
  /// thread-safe; must not be called by a task.
  void run(std::size_t n_tasks, const std::function<void(std::size_t)>& task);

 private:
  void start(std::size_t n_threads, int n_compute_threads);
  void end();
  void await_all();
  void work(std::size_t index, int n_compute_threads);
  [[noreturn]] void explain_failure(std::size_t replica) const;

  Mutex mutex_;
  Condition wake_;  // signaled for a task, and at the end
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
