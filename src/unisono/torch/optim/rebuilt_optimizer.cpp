#include "unisono/torch/optim/rebuilt_optimizer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "unisono/base/log.h"

namespace unisono::optim {
namespace {

constexpr int kManyInARow = 3;
constexpr int kMostWindows = 10;

// Weak references instead of plain pointers: no new object can reuse the address.
using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Number of first steps of optimizers of one parameter, without another step in between.
struct FirstSteps {
  std::optional<WeakTensor> parameter;
  int n = 0;
};

void warn() {
  // Per thread, because ranks may be threads with one optimizer each.
  thread_local bool has_warned = false;
  if (!std::exchange(has_warned, true)) {
    base::Logger("optim").warning(
        "each of the last 3 steps was the first of a new optimizer, which has no momentum and no "
        "averages of earlier steps; make the optimizer once, before the loop");
  }
}

}  // namespace

void note_step(const at::Tensor& parameter, bool is_first) {
  thread_local FirstSteps steps;
  WeakTensor which(parameter.getIntrusivePtr());
  const bool goes_on = is_first && which == steps.parameter;
  steps.parameter = std::move(which);
  steps.n = goes_on ? steps.n + 1 : (is_first ? 1 : 0);
  if (steps.n >= kManyInARow) {
    warn();
  }
}

/// The operations between two passes that concern one parameter.
class OptimizerWatch::Window {
 public:
  explicit Window(at::Tensor parameter) : parameter_(std::move(parameter)) {}

  void open() {
    is_open_ = true;
    has_stepped_ = false;
    has_made_state_ = false;
  }

  void close() {
    is_open_ = false;
    copies_.clear();
  }

  [[nodiscard]] bool is_open() const { return is_open_; }

  /// Called at the start of an operation. Returns true if remember() is to be called with the
  /// result.
  bool see(std::string_view operation, c10::ArrayRef<const c10::IValue> inputs) {
    if (!is_open_ || inputs.empty() || !has_memory(inputs.front())) {
      return false;
    }
    const at::Tensor& first = inputs.front().toTensor();
    const bool takes_copy = std::ranges::any_of(
        inputs.slice(1), [&](const c10::IValue& input) { return is_copy(input); });
    if (first.is_alias_of(parameter_)) {
      const bool is_in_place = operation.ends_with('_');
      has_stepped_ = has_stepped_ || is_in_place;
      has_made_state_ = has_made_state_ || operation == "aten::zeros_like" ||
                        operation == "aten::full_like" || (is_in_place && takes_copy);
      return false;
    }
    // SGD's momentum starts as a copy of the gradient; with Nesterov momentum, as a sum of gradient
    // and copy.
    return first.sizes() == parameter_.sizes() &&
           (operation == "aten::clone" || (operation == "aten::add" && takes_copy));
  }

  void remember(const c10::IValue& result) {
    if (has_memory(result)) {
      copies_.push_back(result.toTensor().storage().getWeakStorageImpl());
    }
  }

  [[nodiscard]] bool has_stepped() const { return has_stepped_; }

  [[nodiscard]] bool has_made_state() const { return has_made_state_; }

 private:
  static bool has_memory(const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage();
  }

  [[nodiscard]] bool is_copy(const c10::IValue& value) const {
    if (!has_memory(value)) {
      return false;
    }
    const WeakStorage storage = value.toTensor().storage().getWeakStorageImpl();
    return std::ranges::any_of(copies_, [&](const WeakStorage& copy) { return copy == storage; });
  }

  at::Tensor parameter_;
  std::vector<WeakStorage> copies_;
  bool is_open_ = false;
  bool has_stepped_ = false;
  bool has_made_state_ = false;
};

namespace {

using Window = OptimizerWatch::Window;

// The windows of models with passes on this thread, and the callback that serves the windows while
// the list is not empty.
struct Windows {
  std::vector<std::weak_ptr<Window>> all;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
};

Windows& windows_of_thread() {
  thread_local Windows windows;
  return windows;
}

struct Remembering : at::ObserverContext {
  std::vector<std::shared_ptr<Window>> by;
};

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  std::unique_ptr<Remembering> remembering;
  for (const std::weak_ptr<Window>& each : windows_of_thread().all) {
    const std::shared_ptr<Window> window = each.lock();
    if (window != nullptr && window->see(function.name(), function.inputs())) {
      if (remembering == nullptr) {
        remembering = std::make_unique<Remembering>();
      }
      remembering->by.push_back(window);
    }
  }
  return remembering;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr || function.outputs().empty()) {
    return;
  }
  for (const std::shared_ptr<Window>& window : static_cast<Remembering*>(context)->by) {
    window->remember(function.outputs().front());
  }
}

// Not called in a backward pass: LibTorch restores a thread's callbacks at the end of the pass.
void update_callback(Windows& windows) {
  std::erase_if(windows.all, [](const std::weak_ptr<Window>& each) { return each.expired(); });
  const bool is_there = windows.callback != at::INVALID_CALLBACK_HANDLE;
  if (windows.all.empty() && is_there) {
    at::removeCallback(std::exchange(windows.callback, at::INVALID_CALLBACK_HANDLE));
  } else if (!windows.all.empty() && !is_there) {
    windows.callback = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_begin, &on_end)
                                                      .needsInputs(true)
                                                      .needsOutputs(true)
                                                      .scopes({at::RecordScope::FUNCTION}));
  }
}

}  // namespace

OptimizerWatch::OptimizerWatch(at::Tensor parameter)
    : window_(std::make_shared<Window>(std::move(parameter))) {}

void OptimizerWatch::before_forward() {
  if (window_ == nullptr) {
    return;
  }
  close_window();
  Windows& windows = windows_of_thread();
  if (is_done_) {
    window_.reset();
  } else if (std::ranges::none_of(windows.all, [this](const std::weak_ptr<Window>& each) {
               return each.lock() == window_;
             })) {
    windows.all.push_back(window_);
  }
  update_callback(windows);
}

void OptimizerWatch::before_backward() {
  close_window();
}

void OptimizerWatch::after_backward() {
  if (window_ != nullptr && !is_done_) {
    is_done_ = ++n_windows_ == kMostWindows;
    window_->open();
  }
}

void OptimizerWatch::close_window() {
  if (window_ == nullptr || !window_->is_open()) {
    return;
  }
  window_->close();
  if (window_->has_made_state()) {
    if (++n_first_steps_ == kManyInARow) {
      warn();
      is_done_ = true;
    }
  } else if (window_->has_stepped()) {
    is_done_ = true;
  }
}

}  // namespace unisono::optim
