#include "unisono/torch/optim/rebuilt_optimizer.h"

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "unisono/base/log.h"

namespace unisono::optim {
namespace {

constexpr int kManyInARow = 3;

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;

// First steps of optimizers of one parameter, with no other step between them.
struct FirstSteps {
  // Weak, not a plain pointer: no other parameter can come to lie at its address.
  std::optional<WeakTensor> parameter;
  int n = 0;
  bool has_warned = false;
};

}  // namespace

void note_step(const at::Tensor& parameter, bool is_first) {
  // Ranks may be threads, and each has an optimizer.
  thread_local FirstSteps steps;
  WeakTensor which(parameter.getIntrusivePtr());
  const bool goes_on = is_first && which == steps.parameter;
  steps.parameter = std::move(which);
  steps.n = goes_on ? steps.n + 1 : (is_first ? 1 : 0);
  if (steps.n >= kManyInARow && !std::exchange(steps.has_warned, true)) {
    Logger("optim").warning(
        "each of the last 3 steps was the first of a new optimizer, which has no momentum and no "
        "averages of earlier steps; make the optimizer once, before the loop");
  }
}

}  // namespace unisono::optim
