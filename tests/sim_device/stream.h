#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"

#include "sim_device/checker.h"
#include "sim_device/sim_device.h"

namespace sim {

/// Errors of tasks that no host thread has seen yet, oldest first. Thread-safe.
class TaskErrors {
 public:
  void add(std::exception_ptr error);

  /// Throws the oldest error, if there is one. It is dropped thereby.
  void rethrow();

  /// Returns and drops the texts of all errors.
  std::vector<std::string> take();

 private:
  unisono::Mutex mutex_;
  std::deque<std::exception_ptr> errors_ UNISONO_GUARDED_BY(mutex_);
};

/// State that all streams of a machine share.
struct StreamContext {
  explicit StreamContext(const Options& all_options) : options(all_options) {}

  const Options options;
  Checker checker;
  TaskErrors errors;
  std::atomic<bool> delays_enabled{true};
  std::atomic<std::uint64_t> tasks{0};
  std::atomic<std::uint64_t> host_waits{0};
  /// Each stream's thread calls the function first. Set before the first stream is made.
  std::function<void()> on_thread_start;
};

/// A point in the work of a stream. Shared by the stream that reaches it and all that wait.
class Event {
 public:
  explicit Event(Clock clock) : clock_(std::move(clock)) {}

  [[nodiscard]] const Clock& clock() const { return clock_; }

  void complete();
  [[nodiscard]] bool is_done() const;

  /// Blocks until the stream has reached this point. Throws Error after `limit`.
  void wait(std::chrono::seconds limit) const;

  /// Returns the time at which the stream reached this point; 0 before.
  [[nodiscard]] double time_ms() const;

 private:
  const Clock clock_;
  mutable unisono::Mutex mutex_;
  mutable unisono::Condition done_condition_;
  bool is_done_ UNISONO_GUARDED_BY(mutex_) = false;
  double time_ms_ UNISONO_GUARDED_BY(mutex_) = 0;
};

using EventPtr = std::shared_ptr<Event>;

/// A queue of tasks with a thread that runs them in order, some of them late on purpose.
///
/// Owned by Streams. Any thread may call the functions. The exception of a task goes to TaskErrors.
/// The queue has no limit. In a child of fork() the functions that need the thread throw Error.
class Stream {
 public:
  Stream(int device, std::int64_t id, StreamContext& context);

  /// Runs the remaining tasks and ends the thread.
  ~Stream();

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Stream(Stream&&) = delete;
  Stream& operator=(Stream&&) = delete;

  [[nodiscard]] int device() const { return device_; }

  [[nodiscard]] std::int64_t id() const { return id_; }

  /// Appends a task that makes `accesses`, and returns at once.
  void launch(std::function<void()> task, std::span<const Access> accesses);

  EventPtr record();

  /// Later tasks of this stream start after the event.
  void wait(EventPtr event);

  /// The release of a block that belongs to this stream: fills its `size` bytes at `bytes` with
  /// 0xff in stream order. `begin` is the address that tensors have.
  void release(std::uintptr_t begin, std::size_t size, void* bytes);

  /// Blocks the host until all tasks are done. Throws Error after the wait limit. Does not throw
  /// errors of tasks.
  void synchronize();

  /// Returns true if all tasks are done. The host then counts as having waited for them.
  [[nodiscard]] bool is_idle();

 private:
  struct Task {
    std::function<void()> run;
    const char* operation;
  };

  void push(Task task) UNISONO_EXCLUDES(mutex_);
  void run_tasks() UNISONO_EXCLUDES(mutex_);
  void run(const Task& task);
  void delay();

  const int device_;
  const std::int64_t id_;
  StreamContext& context_;
  const std::string name_;
  const std::size_t number_;
  unisono::Mutex mutex_;
  unisono::Condition pushed_condition_;
  unisono::Condition done_condition_;
  std::deque<Task> tasks_ UNISONO_GUARDED_BY(mutex_);
  std::uint64_t pushed_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ UNISONO_GUARDED_BY(mutex_) = 0;
  const char* running_ UNISONO_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ UNISONO_GUARDED_BY(mutex_) = false;
  std::mt19937_64 random_;  // Used by the thread alone.
  std::thread thread_;
};

/// Returns true in a child of fork(), where the threads of streams do not exist.
[[nodiscard]] bool is_forked_child();

}  // namespace sim
