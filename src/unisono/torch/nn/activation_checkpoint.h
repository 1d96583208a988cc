#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

namespace unisono::nn {

/// Which parts of a model keep nothing for backward but their input.
enum class CheckpointMode : std::uint8_t {
  kNever,
  kAlways,
  kExceptLast  ///< Backward begins with the last part, and would compute it again at once.
};

/// `forward(inputs)`, of which only the inputs are kept: backward computes it again, with the same
/// random numbers and the same autocast, and so takes less memory and a forward pass more time.
/// Random numbers are those of the default generator, which the process has one of: while another
/// thread draws from it, too (another model's training, say), they may differ.
///
/// What `forward` uses besides its inputs, parameters say, must live until backward, and must not
/// have changed by then. It must do the same in both runs; modules that count their calls (running
/// means of BatchNorm) count two. Under DistributedDataParallel a parameter is used in one
/// checkpoint only.
///
/// Backward throws Error(kInvalidArgument) where it is to compute the gradients of chosen tensors
/// only (torch::autograd::grad()).
[[nodiscard]] std::vector<at::Tensor> checkpoint(
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> forward,
    const std::vector<at::Tensor>& inputs);

/// The same for one tensor.
[[nodiscard]] at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> forward,
                                    const at::Tensor& input);

/// model(input), in `n_segments` parts of as many modules each, of which the mode chooses those
/// that keep their inputs only. Each module takes a tensor and returns one.
///
/// Throws Error(kInvalidArgument) unless there are as many modules as segments, and one at least.
[[nodiscard]] at::Tensor checkpoint_sequential(const torch::nn::Sequential& model,
                                               std::size_t n_segments,
                                               const at::Tensor& input,
                                               CheckpointMode mode = CheckpointMode::kExceptLast);

}  // namespace unisono::nn
