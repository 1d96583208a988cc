#include "future_runner.h"

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"

namespace unisono::python {

void FutureRunner::run(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    bool has_thread = !is_stopping_;
    if (has_thread && n_idle_ <= tasks_.size()) {
      try {
        threads_.push_back(start_thread("unisono-future",
                                        "can't start a thread for futures",
                                        [self = shared_from_this()] { self->work(); }));
      } catch (const Error&) {
        has_thread = false;
      }
    }
    if (has_thread) {
      tasks_.push_back(std::move(task));
      changed_.notify_all();
      return;
    }
  }
  task();
}

void FutureRunner::stop() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) {
    // A task may release the last reference to the backend, and then stops the runner from its own
    // thread.
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void FutureRunner::work() {
  while (true) {
    std::function<void()> task;
    {
      const MutexLock lock(mutex_);
      ++n_idle_;
      while (tasks_.empty() && !is_stopping_) {
        changed_.wait(mutex_);
      }
      --n_idle_;
      if (tasks_.empty()) {
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace unisono::python
