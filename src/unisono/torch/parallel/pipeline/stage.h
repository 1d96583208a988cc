#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace unisono::parallel {

using Tensors = std::vector<at::Tensor>;

/// A part of a model: a chunk of the batch goes in, and what later stages take in comes out.
struct Stage {
  /// Whose parameters are trained. May be null.
  std::shared_ptr<torch::nn::Module> module;
  /// `inputs` are, in this order: what the stage before returned, what skip connections bring, and
  /// inputs of the batch.
  std::function<Tensors(const Tensors& inputs)> forward;
  /// What the names of its parameters begin with in the whole model: "encoder.". Default:
  /// "stage0.", "stage1.", ...
  std::optional<std::string> prefix = {};
  /// Sizes of each output, if they are to be checked; -1 for any. Empty: no check.
  std::vector<std::vector<std::int64_t>> output_sizes = {};
};

/// Makes stage `number`; only called for the stages of the own rank.
using MakeStage = std::function<Stage(int number)>;

/// A stage of a module (a holder, such as torch::nn::Linear) that takes a tensor and returns one.
template <class Module>
[[nodiscard]] Stage stage_of(Module module) {
  return {.module = module.ptr(), .forward = [module](const Tensors& inputs) mutable -> Tensors {
            return {module->forward(inputs.at(0))};
          }};
}

}  // namespace unisono::parallel
