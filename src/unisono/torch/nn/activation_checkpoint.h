#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

namespace unisono::nn {

/// Selects the parts of a model that keep only inputs for backward.
enum class CheckpointMode : std::uint8_t {
  kNever,
  kAlways,
  /// Backward begins with the last part, and would compute that part again immediately.
  kExceptLast
};

/// Returns `forward(inputs)` and keeps only the inputs: backward calls `forward` again, with the
/// same random numbers and the same autocast state. This saves memory and costs another forward
/// pass. The random numbers come from the default generators of the CPU and of the devices of
/// `inputs`, which are global to the process: if another thread draws numbers without a RandomTurn
/// (the training of another model, for example), the numbers may differ. The same holds for numbers
/// that `forward` draws on a device without an input.
///
/// Other tensors that `forward` uses, such as parameters, must live until backward and must not
/// change before. `forward` must behave equally in both runs; modules that count calls (running
/// means of BatchNorm) count two. Under DistributedDataParallel a parameter may be used in a single
/// checkpoint only.
///
/// Backward throws Error(kInvalidArgument) if only the gradients of chosen tensors are requested
/// (torch::autograd::grad()).
[[nodiscard]] std::vector<at::Tensor> checkpoint(
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> forward,
    const std::vector<at::Tensor>& inputs);

/// Overload for a single tensor.
[[nodiscard]] at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> forward,
                                    const at::Tensor& input);

/// Returns model(input), computed in `n_segments` parts with equal numbers of modules (the last
/// part takes the remainder). `mode` selects the parts that keep only inputs. Each module takes and
/// returns a single tensor.
///
/// Throws Error(kInvalidArgument) unless 1 <= n_segments <= number of modules.
[[nodiscard]] at::Tensor checkpoint_sequential(const torch::nn::Sequential& model,
                                               std::size_t n_segments,
                                               const at::Tensor& input,
                                               CheckpointMode mode = CheckpointMode::kExceptLast);

}  // namespace unisono::nn
