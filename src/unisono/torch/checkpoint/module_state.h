#pragma once

#include <vector>

#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace torch::optim {
class Optimizer;
}

namespace unisono {

/// The module's parameters and buffers under their names in it. They share its memory: whoever
/// saves them later than at once copies them first, as checkpoint::Saver does. A tensor of several
/// names is there under each, as in Python's state_dict().
///
/// Of a wrapped module pass `*model.module()`.
[[nodiscard]] TensorState module_state(const torch::nn::Module& module);

/// Copies the state into the module's parameters and buffers, whose memory and strides stay. Names
/// may all begin with "module.", as Python's DistributedDataParallel saves them.
///
/// A tensor of several names may have any of them in the state, as files of Python's
/// safetensors.torch.save_model() do, or several with equal values.
///
/// Throws Error(kInvalidArgument), and has changed nothing, unless the state has exactly the
/// module's names, types and shapes; the message names those that are missing, too many or differ.
void load_module_state(torch::nn::Module& module, const TensorState& state);

/// The optimizer's options and what it has of each parameter, under the parameters' names in the
/// module: "state.fc.weight.momentum_buffer", "options.0.lr". Copies of all.
///
/// Of any optimizer of LibTorch's or of unisono::optim. Throws Error(kInvalidArgument) for a
/// parameter that is not the module's, and for state that is neither tensor nor number.
[[nodiscard]] TensorState optimizer_state(const torch::optim::Optimizer& optimizer,
                                          const torch::nn::Module& module);

/// The same by the names of these: for a parallel::Pipeline, whose ranks have the parameters of
/// their stages, pass `model.named_parameters()`.
[[nodiscard]] TensorState optimizer_state(const torch::optim::Optimizer& optimizer,
                                          const std::vector<NamedTensor>& parameters);

/// Goes on from where the optimizer was whose optimizer_state() it is.
///
/// Throws Error(kInvalidArgument), and has changed nothing, for the state of another kind of
/// optimizer, of other groups, of parameters of other names or shapes, or with different values
/// under the names of one parameter.
void load_optimizer_state(torch::optim::Optimizer& optimizer,
                          const torch::nn::Module& module,
                          const TensorState& state);
void load_optimizer_state(torch::optim::Optimizer& optimizer,
                          const std::vector<NamedTensor>& parameters,
                          const TensorState& state);

}  // namespace unisono
