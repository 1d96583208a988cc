#include "unisono/torch/parallel/thread_ranks.h"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include "unisono/base/error.h"
#include "unisono/base/error_text.h"
#include "unisono/base/mutex.h"
#include "unisono/store/hash_store.h"

namespace unisono::parallel {
namespace {

// The first error of several threads. Later errors are consequences of the first.
class FirstError {
 public:
  void set(std::exception_ptr error) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (error_ == nullptr) {
      error_ = std::move(error);
    }
  }

  void rethrow() UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

 private:
  Mutex mutex_;
  std::exception_ptr error_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace

void run_in_threads(int n_ranks,
                    const std::function<void(const std::shared_ptr<ProcessGroup>& group)>& body) {
  if (n_ranks < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "run_in_threads: " + std::to_string(n_ranks) + " ranks; the least is 1");
  }
  const auto store = std::make_shared<store::HashStore>();
  const int n_compute_threads = std::max(1, at::get_num_threads() / n_ranks);
  FirstError first;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::shared_ptr<ProcessGroup> group;
      try {
        at::set_num_threads(n_compute_threads);
        group = create_process_group({.store = store, .rank = rank, .world_size = n_ranks});
        body(group);
        group->destroy();
      } catch (const std::exception& error) {
        first.set(std::current_exception());
        if (group != nullptr) {
          group->abort(error_text(error));
        }
      } catch (...) {
        first.set(std::current_exception());
        if (group != nullptr) {
          group->abort("the rank's function threw an object that is no std::exception");
        }
      }
    });
  }
  threads.clear();  // Joins the threads.
  first.rethrow();
}

}  // namespace unisono::parallel
