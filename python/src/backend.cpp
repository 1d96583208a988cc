#include "backend.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/comm/init.h"
#include "unisono/comm/work.h"

#include "connect.h"
#include "errors.h"
#include "future_runner.h"
#include "interrupt.h"
#include "work.h"

namespace unisono::python {
namespace {

constexpr auto is_of_this_thread = [](const auto& coalesced) {
  return coalesced.thread == std::this_thread::get_id();
};

}  // namespace

Backend::Backend(const GroupPlan& plan, c10::intrusive_ptr<python::Options> options)
    : c10d::Backend(plan.rank, plan.world_size),
      pid_(::getpid()),
      group_(with_translated_errors([&] { return connect(plan); })),
      options_(std::move(options)),
      futures_(std::make_shared<FutureRunner>()),
      n_under_way_(std::make_shared<std::atomic<int>>(0)),
      timeout_(plan.timeout) {
  init();
}

Backend::~Backend() {
  if (is_in_child()) {
    // Leaked on purpose: a child of fork() must not destroy these objects.
    new std::shared_ptr<ProcessGroup>(std::move(group_));
    new std::shared_ptr<FutureRunner>(std::move(futures_));
    return;
  }
  if (is_started_thread()) {
    // The destructor would join the current thread: a callback attached to a future held the last
    // reference to the backend.
    std::thread([group = std::move(group_), futures = std::move(futures_)] {
      group->destroy();
      futures->stop();
    }).detach();
    return;
  }
  try {
    abort_operations();
    shutdown();
  } catch (...) {
    report_unraisable();
  }
}

bool Backend::is_in_child() const {
  return ::getpid() != pid_;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout <= std::chrono::milliseconds::zero()) {
    reject("set_timeout", "a timeout of " + std::to_string(timeout.count()) + " ms");
  }
  timeout_ = timeout;
  options_->timeout = timeout;
}

std::chrono::milliseconds Backend::timeout(std::chrono::milliseconds asked) const {
  return asked == c10d::kUnsetTimeout ? timeout_.load() : asked;
}

// Releases the GIL, because callbacks attached to futures may need the GIL to finish.
void Backend::shutdown() {
  if (is_in_child()) {
    return;
  }
  without_gil([this] {
    with_translated_errors([this] { group_->destroy(); });
    futures_->stop();
  });
}

void Backend::abort() {
  with_translated_errors([this] { group_->abort("abort() was called"); });
}

void Backend::abort_operations() {
  if (n_under_way_->load() > 0 && !is_in_child()) {
    without_gil([this] { group_->abort("its process ends with operations under way"); });
  }
}

void Backend::leave_all(const std::vector<c10::intrusive_ptr<Backend>>& backends, bool has_failed) {
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  for (const auto& backend : backends) {
    if (!backend->is_in_child()) {
      groups.push_back(backend->group_);
    }
  }
  if (has_failed) {
    for (const auto& backend : backends) {
      backend->abort_operations();
    }
  }
  comm::leave_at_exit(groups, has_failed ? comm::kFailedExitPatience : comm::kExitPatience);
  for (const auto& backend : backends) {
    backend->shutdown();
  }
  throw_raised();
}

std::uint64_t Backend::getSequenceNumberForGroup() {
  return n_operations_;
}

void Backend::startCoalescing() {
  const MutexLock lock(mutex_);
  // Removes the remains of a block that ended with an exception.
  std::erase_if(coalesced_, is_of_this_thread);
  coalesced_.push_back({.thread = std::this_thread::get_id(), .works = {}});
}

Backend::WorkHandle Backend::endCoalescing() {
  Works parts;
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(coalesced_.begin(), coalesced_.end(), is_of_this_thread);
    if (found == coalesced_.end()) {
      reject("end_coalescing", "there was no start_coalescing");
    }
    parts.swap(found->works);
    coalesced_.erase(found);
  }
  auto work =
      c10::make_intrusive<Work>(getRank(), describe(c10d::OpType::COALESCED, nullptr, {}, {}));
  work->follow(std::move(parts));
  return work;
}

// Drops operations that succeeded: after an exception, a program may never call endCoalescing().
void Backend::note_coalesced(const c10::intrusive_ptr<Work>& work) {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(coalesced_.begin(), coalesced_.end(), is_of_this_thread);
  if (found != coalesced_.end()) {
    std::erase_if(found->works, [](const auto& earlier) {
      return earlier->isCompleted() && earlier->isSuccess();
    });
    found->works.push_back(work);
  }
}

OperationInfo Backend::describe(c10d::OpType type,
                                const char* title,
                                Tensors inputs,
                                std::vector<Tensors> outputs) {
  ++n_operations_;
  return {.type = type,
          .title = title,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .futures = futures_,
          .n_under_way = n_under_way_};
}

Backend::WorkHandle Backend::follow(c10::intrusive_ptr<Work> work,
                                    std::vector<unisono::Work> parts,
                                    Staging staging) {
  note_coalesced(work);
  work->follow(std::move(parts), std::move(staging));
  return work;
}

}  // namespace unisono::python
