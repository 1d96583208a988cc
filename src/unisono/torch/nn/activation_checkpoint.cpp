#include "unisono/torch/nn/activation_checkpoint.h"

#include <string>
#include <utility>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "unisono/base/error.h"
#include "unisono/torch/amp/amp.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/random_state.h"

namespace unisono::nn {
namespace {

namespace autograd = ::torch::autograd;

using Tensors = std::vector<at::Tensor>;
using Forward = std::function<Tensors(const Tensors&)>;

bool can_have_gradient(at::ScalarType type) {
  return at::isFloatingType(type) || at::isComplexType(type);
}

// Autograd node that runs the forward pass again, then the backward pass of the result.
class Recompute : public autograd::Node {
 public:
  Recompute(Forward forward, const Tensors& inputs)
      : forward_(std::move(forward)), devices_(accelerators_of(inputs)), random_states_(devices_) {
    for (const at::Tensor& input : inputs) {
      inputs_.emplace_back(input, /*is_output=*/false);
      needs_gradient_.push_back(input.defined() && input.requires_grad());
      add_next_edge(needs_gradient_.back() ? autograd::impl::gradient_edge(input)
                                           : autograd::Edge());
    }
  }

  [[nodiscard]] std::string name() const override { return "ActivationCheckpointBackward"; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (autograd::SavedVariable& input : inputs_) {
      input.reset_data();
    }
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    // The second run has separate backward passes, which reach all parameters.
    if (!autograd::Engine::get_default_engine().is_checkpoint_valid()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "checkpoint: gradients of chosen tensors (torch::autograd::grad(), or the inputs "
                  "of backward()) can't be computed through an activation checkpoint; use "
                  "backward() of all, or CheckpointMode::kNever");
    }
    const Tensors inputs = unpack();
    const Tensors outputs = run_again(inputs);
    UNISONO_CHECK(outputs.size() == gradients.size(),
                  "a checkpoint's forward returns another number of tensors the second time");
    Tensors roots;
    Tensors of_roots;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].defined() && outputs[i].requires_grad() && gradients[i].defined()) {
        roots.push_back(outputs[i]);
        of_roots.push_back(gradients[i]);
      }
    }
    if (!roots.empty()) {
      autograd::backward(roots, of_roots);
    }
    autograd::variable_list result;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      result.push_back(needs_gradient_[i] ? inputs[i].grad() : at::Tensor());
    }
    return result;
  }

 private:
  // Returns the inputs as leaves of a separate graph.
  Tensors unpack() {
    Tensors inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const at::Tensor saved = inputs_[i].unpack();
      inputs.push_back(saved.defined() ? saved.detach().set_requires_grad(needs_gradient_[i])
                                       : saved);
    }
    return inputs;
  }

  [[nodiscard]] Tensors run_again(const Tensors& inputs) const {
    const c10::AutoGradMode with_gradients(true);
    const RandomTurn turn(devices_);
    const KeptRandomState kept(devices_);
    random_states_.restore();
    if (autocast_.is_enabled() || AutocastState().is_enabled()) {
      const Autocast autocast(autocast_);
      return forward_(inputs);
    }
    return forward_(inputs);
  }

  Forward forward_;
  RandomDevices devices_;
  RandomStates random_states_;
  AutocastState autocast_;
  std::vector<autograd::SavedVariable> inputs_;
  std::vector<bool> needs_gradient_;
};

}  // namespace

Tensors checkpoint(Forward forward, const Tensors& inputs) {
  if (!c10::GradMode::is_enabled()) {
    return forward(inputs);
  }
  auto node = c10::make_intrusive<Recompute>(forward, inputs);
  Tensors outputs;
  {
    const c10::NoGradGuard nothing_kept;
    outputs = forward(inputs);
  }
  for (at::Tensor& output : outputs) {
    if (output.defined() && can_have_gradient(output.scalar_type())) {
      output = output.detach();
      autograd::create_gradient_edge(output, node);
    } else {
      node->add_input_metadata(autograd::Node::undefined_input());
    }
  }
  return outputs;
}

at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> forward,
                      const at::Tensor& input) {
  return checkpoint([forward = std::move(forward)](
                        const Tensors& inputs) -> Tensors { return {forward(inputs[0])}; },
                    Tensors{input})[0];
}

at::Tensor checkpoint_sequential(const torch::nn::Sequential& model,
                                 std::size_t n_segments,
                                 const at::Tensor& input,
                                 CheckpointMode mode) {
  const std::size_t n_modules = model->size();
  if (n_segments == 0 || n_segments > n_modules) {
    throw Error(ErrorCode::kInvalidArgument,
                "checkpoint_sequential: " + std::to_string(n_segments) + " segments of " +
                    std::to_string(n_modules) + " modules; each needs one at least");
  }
  at::Tensor value = input;
  for (std::size_t segment = 0; segment < n_segments; ++segment) {
    const bool is_last = segment + 1 == n_segments;
    const std::size_t begin = segment * (n_modules / n_segments);
    const std::size_t end = is_last ? n_modules : begin + n_modules / n_segments;
    const auto run = [modules = model.ptr(), begin, end](const at::Tensor& x) {
      at::Tensor result = x;
      for (std::size_t i = begin; i < end; ++i) {
        result = (modules->begin() + static_cast<std::ptrdiff_t>(i))->forward<at::Tensor>(result);
      }
      return result;
    };
    const bool keeps_input_only =
        mode == CheckpointMode::kAlways || (mode == CheckpointMode::kExceptLast && !is_last);
    value = keeps_input_only ? checkpoint(run, value) : run(value);
  }
  return value;
}

}  // namespace unisono::nn
