#include "backend.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "unisono/base/mutex.h"
#include "unisono/comm/work.h"

#include "connect.h"
#include "errors.h"
#include "future_runner.h"
#include "interrupt.h"
#include "work.h"

namespace unisono::python {

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
    // Never destroyed.
    new std::shared_ptr<ProcessGroup>(std::move(group_));
    new std::shared_ptr<FutureRunner>(std::move(futures_));
    return;
  }
  try {
    leave();
  } catch (const std::exception&) {
    // Nobody is left to hear of it; the others see that this rank is gone.
    return;
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

// What is attached to futures may need the GIL to end.
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

void Backend::leave() {
  if (n_under_way_->load() > 0 && !is_in_child()) {
    without_gil([this] { group_->abort("its process ends with operations under way"); });
  }
  shutdown();
}

std::uint64_t Backend::getSequenceNumberForGroup() {
  return n_operations_;
}

void Backend::startCoalescing() {
  const MutexLock lock(mutex_);
  coalesced_.emplace();
}

Backend::WorkHandle Backend::endCoalescing() {
  std::optional<std::vector<c10::intrusive_ptr<Work>>> parts;
  {
    const MutexLock lock(mutex_);
    parts.swap(coalesced_);
  }
  if (!parts) {
    reject("end_coalescing", "there was no start_coalescing");
  }
  Tensors outputs;
  for (const auto& part : *parts) {
    const Tensors more = part->result();
    outputs.insert(outputs.end(), more.begin(), more.end());
  }
  auto work = c10::make_intrusive<Work>(
      getRank(), describe(c10d::OpType::COALESCED, nullptr, {}, std::move(outputs)));
  work->follow(*std::move(parts));
  return work;
}

OperationInfo Backend::describe(c10d::OpType type,
                                const char* title,
                                Tensors inputs,
                                Tensors outputs) {
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
  {
    const MutexLock lock(mutex_);
    if (coalesced_) {
      coalesced_->push_back(work);
    }
  }
  work->follow(std::move(parts), std::move(staging));
  return work;
}

}  // namespace unisono::python
