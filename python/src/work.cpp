#include "work.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include "unisono/base/deadline.h"
#include "unisono/comm/work.h"

#include "errors.h"
#include "exit_guard.h"
#include "interrupt.h"

namespace unisono::python {
namespace {

// Longest delay until a wait reacts to Ctrl-C.
constexpr std::chrono::milliseconds kSlice{100};

// Returns the devices of the tensors, each once, in the order that a future requires.
std::vector<c10::Device> devices_of(const std::vector<std::vector<at::Tensor>>& outputs) {
  std::vector<c10::Device> devices;
  for (const std::vector<at::Tensor>& list : outputs) {
    for (const at::Tensor& tensor : list) {
      if (tensor.defined() && !tensor.device().is_cpu() &&
          std::ranges::find(devices, tensor.device()) == devices.end()) {
        devices.push_back(tensor.device());
      }
    }
  }
  std::ranges::sort(devices, {}, [](const c10::Device& device) { return device.index(); });
  return devices;
}

std::optional<std::vector<at::Tensor>> profiled(std::vector<at::Tensor> inputs) {
  return inputs.empty() ? std::nullopt : std::optional(std::move(inputs));
}

}  // namespace

at::IValue future_value(const std::vector<std::vector<at::Tensor>>& outputs) {
  if (outputs.size() > 1) {
    return outputs;
  }
  return outputs.empty() ? std::vector<at::Tensor>() : outputs.front();
}

Work::Work(int rank, OperationInfo info)
    : c10d::Work(rank, info.type, info.title, profiled(std::move(info.inputs))),
      info_(std::move(info)) {}

void Work::follow(std::vector<unisono::Work> works, Staging staging) {
  staging_ = std::move(staging);
  works_ = std::move(works);
  // An additional count, so that the operation cannot complete while parts are being registered.
  n_under_way_ = works_.size() + 1;
  info_.n_under_way->fetch_add(1);
  for (const unisono::Work& work : works_) {
    work.on_completion([self = shared()](std::exception_ptr error) { self->note_end(error); });
  }
  note_end(nullptr);
}

void Work::follow(std::vector<c10::intrusive_ptr<Work>> works) {
  n_under_way_ = works.size() + 1;
  info_.n_under_way->fetch_add(1);
  parts_ = works;
  for (const auto& work : works) {
    work->on_end([self = shared()](std::exception_ptr error) { self->note_end(error); });
  }
  note_end(nullptr);
}

c10::intrusive_ptr<Work> Work::shared() {
  return c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
}

void Work::on_end(Callback callback) {
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!completed_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    error = exception_;
  }
  callback(error);
}

void Work::note_end(std::exception_ptr error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_error_ == nullptr) {
      first_error_ = std::move(error);
    }
    if (--n_under_way_ > 0) {
      return;
    }
    error = first_error_;
  }
  info_.n_under_way->fetch_sub(1);
  end(std::move(error));
}

void Work::end(std::exception_ptr error) {
  if (error == nullptr) {
    try {
      staging_.copy_back();
    } catch (...) {
      error = std::current_exception();
    }
  }
  finish(translated(error));
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::vector<Callback> callbacks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    future = future_;
    callbacks.swap(callbacks_);
  }
  for (const Callback& callback : callbacks) {
    callback(exception_);
  }
  if (future != nullptr) {
    info_.futures->run([self = shared(), future] { self->complete_future(future); });
  }
}

void Work::follow_results() const {
  for (const unisono::Work& work : works_) {
    work.wait();
  }
  for (const auto& part : parts_) {
    part->follow_results();
  }
}

void Work::complete_future(const c10::intrusive_ptr<c10::ivalue::Future>& future) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(has_future_ended_, true)) {
      return;
    }
  }
  if (exception_ != nullptr) {
    future->setError(exception_);
  } else {
    // The future records events in this thread's current streams.
    follow_results();
    future->markCompleted(future_value(info_.outputs));
  }
}

bool Work::wait(std::chrono::milliseconds timeout) {
  const ExitGuard exit_guard;
  const Deadline deadline = timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
  const auto under_way = std::find_if(
      works_.begin(), works_.end(), [](const auto& work) { return !work.is_completed(); });
  std::optional<unisono::WaitMark> mark;
  // A wait with a limit is not marked as blocking, because the thread may continue with other work.
  if (deadline.is_never() && under_way != works_.end()) {
    mark.emplace(*under_way);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  while (!completed_) {
    if (deadline.has_passed()) {
      lock.unlock();
      reject("wait",
             "the operation has not ended within the timeout of " +
                 std::to_string(timeout.count()) + " ms");
    }
    const Deadline slice = earlier(deadline, Deadline::after(kSlice));
    if (!cv_.wait_until(lock, slice.time(), [this] { return completed_; })) {
      lock.unlock();
      run_signal_handlers();
      lock.lock();
    }
  }
  if (exception_ != nullptr) {
    std::rethrow_exception(exception_);
  }
  const c10::intrusive_ptr<c10::ivalue::Future> future = future_;
  lock.unlock();
  follow_results();
  // A caller may read the future's value immediately after wait().
  if (future != nullptr) {
    future->wait();
  }
  return true;
}

bool Work::isCompleted() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return completed_ && (future_ == nullptr || future_->completed());
}

int Work::sourceRank() const {
  return works_.empty() ? -1 : works_.front().source_rank();
}

std::vector<at::Tensor> Work::result() {
  std::vector<at::Tensor> all;
  for (const std::vector<at::Tensor>& list : info_.outputs) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  bool has_ended = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_ != nullptr) {
      return future_;
    }
    future_ = c10::make_intrusive<c10::ivalue::Future>(future_value(info_.outputs).type(),
                                                       devices_of(info_.outputs));
    has_ended = completed_;
  }
  // No callback is attached yet, so the future can be completed on this thread.
  if (has_ended) {
    complete_future(future_);
  }
  return future_;
}

std::uint64_t Work::getSequencenumber() const {
  return works_.empty() ? 0 : works_.front().sequence_number();
}

}  // namespace unisono::python
