#pragma once

// Definitions of ParameterwiseOptimizer's members, for the files that instantiate the template, and
// the ways from tensors to the loops and operators of a step.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/optim/device_steps.h"
#include "unisono/torch/optim/optimizer_steps.h"
#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/optim/rebuilt_optimizer.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::optim {

template <class Options, class State>
at::Tensor ParameterwiseOptimizer<Options, State>::step(LossClosure closure) {
  const c10::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  bool is_noted = false;
  const bool is_first = state_.empty();
  for (::torch::optim::OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<const Options&>(group.options());
    std::vector<at::Tensor> on_devices;
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (gradient.defined()) {
        TORCH_CHECK(gradient.layout() == at::kStrided && has_elements(gradient.device()),
                    "this optimizer takes dense gradients; one is ",
                    gradient.layout(),
                    " on ",
                    gradient.device());
        if (!std::exchange(is_noted, true)) {
          note_step(parameter, is_first);
        }
        if (parameter.is_cpu()) {
          step_parameter(parameter, options, state_of(parameter));
        } else {
          on_devices.push_back(parameter);
        }
      }
    }
    step_all_on_devices(on_devices, options);
  }
  return loss;
}

template <class Options, class State>
void ParameterwiseOptimizer<Options, State>::step_all_on_devices(
    const std::vector<at::Tensor>& parameters, const Options& options) {
  for (const auto& [kind, alike] : by_device_and_type(parameters)) {
    std::vector<State*> states;
    states.reserve(alike.size());
    for (const at::Tensor& parameter : alike) {
      states.push_back(&state_of(parameter));
    }
    step_on_device(alike, options, states);
  }
}

template <class Options, class State>
State& ParameterwiseOptimizer<Options, State>::state_of(const at::Tensor& parameter) {
  std::unique_ptr<::torch::optim::OptimizerParamState>& slot =
      state_[parameter.unsafeGetTensorImpl()];
  if (slot == nullptr) {
    slot = std::make_unique<State>();
  }
  return static_cast<State&>(*slot);
}

template <class Options, class State>
void ParameterwiseOptimizer<Options, State>::save(
    ::torch::serialize::OutputArchive& archive) const {
  ::torch::optim::serialize<State, Options>(archive, *this);
}

template <class Options, class State>
void ParameterwiseOptimizer<Options, State>::load(::torch::serialize::InputArchive& archive) {
  ::torch::optim::serialize<State, Options>(archive, *this);
}

/// Returns true if the elements of all tensors lie in memory in the same order, without gaps, as
/// type T.
template <class T, std::size_t N>
bool is_one_layout(const at::Tensor& gradient, const std::array<at::Tensor, N>& updated) {
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == c10::CppTypeToScalarType<T>::value &&
           tensor.strides() == updated[0].strides() && tensor.device().is_cpu();
  };
  bool do_all_fit = updated[0].is_non_overlapping_and_dense() && fits(gradient);
  for (const at::Tensor& tensor : updated) {
    do_all_fit = do_all_fit && fits(tensor);
  }
  return do_all_fit;
}

template <class T, std::size_t N, class Body>
void on_arrays_of(const at::Tensor& gradient,
                  const std::array<at::Tensor, N>& updated,
                  const Body& body) {
  const auto call = [&](const at::Tensor& slope, const std::array<at::Tensor, N>& tensors) {
    std::array<T*, N> arrays{};
    for (std::size_t i = 0; i < N; ++i) {
      arrays[i] = tensors[i].template data_ptr<T>();
    }
    body(slope.const_data_ptr<T>(), arrays, static_cast<std::size_t>(slope.numel()));
  };
  if (is_one_layout<T>(gradient, updated)) {
    call(gradient, updated);
    return;
  }
  constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;
  const auto flat = [&](const at::Tensor& tensor) {
    return tensor.to(kType, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  };
  std::array<at::Tensor, N> copies;
  std::ranges::transform(updated, copies.begin(), flat);
  call(flat(gradient), copies);
  for (std::size_t i = 0; i < N; ++i) {
    updated[i].copy_(copies[i]);
  }
}

/// Calls `body(gradient, arrays, count)` with the elements of a gradient and of the tensors that an
/// optimizer's step changes, all in the same order. The arrays are of type double for a double
/// parameter, otherwise float. Tensors of equal layout are passed in place, other tensors as copies
/// that are written back.
template <std::size_t N, class Body>
void on_arrays(const at::Tensor& gradient,
               const std::array<at::Tensor, N>& updated,
               const Body& body) {
  if (updated[0].scalar_type() == at::kDouble) {
    on_arrays_of<double>(gradient, updated, body);
  } else {
    on_arrays_of<float>(gradient, updated, body);
  }
}

/// Calls `body(gradients, updated)` with lists of tensors of one device that a step reads and
/// changes, each by parameter. Tensors of 16 bits are passed as copies in 32 bits, which are
/// written back.
template <std::size_t N, class Body>
void on_lists(const Tensors& parameters, const std::array<Tensors, N>& updated, const Body& body) {
  const at::ScalarType type =
      parameters.front().scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto wide = [&](const Tensors& tensors) {
    Tensors copies;
    copies.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      copies.push_back(tensor.to(type));
    }
    return copies;
  };
  Tensors gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad());
  }
  std::array<Tensors, N> copies;
  std::ranges::transform(updated, copies.begin(), wide);
  body(wide(gradients), copies);
  for (std::size_t i = 0; i < N; ++i) {
    for (std::size_t parameter = 0; parameter < parameters.size(); ++parameter) {
      if (!copies[i][parameter].is_same(updated[i][parameter])) {
        updated[i][parameter].copy_(copies[i][parameter]);
      }
    }
  }
}

/// Returns the scalars of a step. AdamW and Lamb have options with the same names.
template <class Options>
AdamWConstants constants_of(const Options& options, const Moments& state) {
  const auto [beta1, beta2] = options.betas();
  return {.lr = options.lr(),
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = options.eps(),
          .weight_decay = options.weight_decay(),
          .bias_correction1 = bias_correction(beta1, state.step()),
          .bias_correction2 = bias_correction(beta2, state.step())};
}

/// Begins a step of parameters on a device and calls `step` with the tensors and scalars.
template <class Options>
void step_with_moments(const Tensors& parameters,
                       const Options& options,
                       const std::vector<Moments*>& states,
                       void (*step)(const AdamTensors&, std::span<const AdamWConstants>)) {
  std::array<Tensors, 3> updated{parameters};
  std::vector<AdamWConstants> constants;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    states[i]->begin_step(parameters[i]);
    updated[1].push_back(states[i]->exp_avg());
    updated[2].push_back(states[i]->exp_avg_sq());
    constants.push_back(constants_of(options, *states[i]));
  }
  on_lists(parameters, updated, [&](const Tensors& gradients, const auto& lists) {
    step({.parameters = lists[0],
          .gradients = gradients,
          .exp_avgs = lists[1],
          .exp_avg_sqs = lists[2]},
         constants);
  });
}

}  // namespace unisono::optim
