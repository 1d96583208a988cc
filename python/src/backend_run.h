#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "arguments.h"
#include "backend.h"
#include "errors.h"
#include "exit_guard.h"
#include "staging.h"
#include "work.h"

namespace unisono::python {

/// RAII guard that counts an operation as in flight.
class UnderWay {
 public:
  explicit UnderWay(std::atomic<int>& count) : count_(count) { ++count_; }

  ~UnderWay() { --count_; }

  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  UnderWay(UnderWay&&) = delete;
  UnderWay& operator=(UnderWay&&) = delete;

 private:
  ExitGuard exit_guard_;
  std::atomic<int>& count_;
};

template <class Function>
void Backend::run_on_core(Function&& function) {
  const UnderWay under_way(*n_under_way_);
  with_translated_errors([&] { function(*group_, timeout_.load()); });
}

template <class Blocking, class Async>
Backend::WorkHandle Backend::run(const Arguments& arguments,
                                 bool is_async,
                                 OperationInfo info,
                                 Staging staging,
                                 Blocking&& blocking,
                                 Async&& async) {
  if (is_async) {
    return run_all(arguments, true, std::move(info), std::move(staging), [&] {
      return std::vector<unisono::Work>{async()};
    });
  }
  const UnderWay under_way(*n_under_way_);
  auto work = c10::make_intrusive<Work>(getRank(), std::move(info));
  return arguments.checked([&]() -> WorkHandle {
    blocking();
    staging.copy_back();
    work->end(nullptr);
    return work;
  });
}

template <class Begin>
Backend::WorkHandle Backend::run_all(
    const Arguments& arguments, bool is_async, OperationInfo info, Staging staging, Begin&& begin) {
  auto work = c10::make_intrusive<Work>(getRank(), std::move(info));
  return arguments.checked([&]() -> WorkHandle {
    const WorkHandle handle = follow(std::move(work), begin(), std::move(staging));
    if (!is_async) {
      handle->wait();
    }
    return handle;
  });
}

}  // namespace unisono::python
