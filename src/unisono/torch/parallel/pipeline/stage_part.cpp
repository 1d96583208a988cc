#include "unisono/torch/parallel/pipeline/stage_part.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/random.h"
#include "unisono/torch/nn/sync_batch_norm.h"
#include "unisono/torch/parallel/tensor/placement.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/random_state.h"
#include "unisono/torch/tensor/random_turn.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

// Of LibTorch's own modules these draw random numbers, or may call what does.
bool may_draw(const torch::nn::Module& module) {
  constexpr std::array<std::string_view, 7> kDrawing{
      "Dropout", "RReLU", "RNN", "LSTM", "GRU", "MultiheadAttention", "Functional"};
  const auto draws = [&](const torch::nn::Module& one) {
    const std::string& name = one.name();
    return (!name.starts_with("torch::nn::") && !name.starts_with("unisono::nn::")) ||
           std::ranges::any_of(kDrawing, [&](std::string_view part) {
             return name.find(part) != std::string::npos;
           });
  };
  return std::ranges::any_of(module.modules(), [&](const auto& one) { return draws(*one); });
}

std::shared_ptr<ProcessGroup> group_of(const torch::nn::Module& module) {
  if (const auto* const divided = dynamic_cast<const ParallelLayer*>(&module)) {
    return divided->group();
  }
  const auto* const norm = dynamic_cast<const nn::SyncBatchNormImpl*>(&module);
  return norm == nullptr ? nullptr : norm->group();
}

void add_groups(const torch::nn::Module& module,
                std::vector<std::shared_ptr<ProcessGroup>>& groups) {
  for (const auto& one : module.modules()) {
    const std::shared_ptr<ProcessGroup> group = group_of(*one);
    if (group != nullptr && group->world_size() > 1 &&
        std::ranges::find(groups, group) == groups.end()) {
      groups.push_back(group);
    }
  }
}

std::uint64_t seed_of(const ChunkRandom& random, int layer) {
  const std::uint64_t of_chunk =
      Random::of_sample(static_cast<std::int64_t>(random.seed), random.step, random.chunk).next();
  return Random(of_chunk + static_cast<std::uint64_t>(layer)).next();
}

}  // namespace

StagePart::StagePart(int number, Stage stage)
    : number_(number), output_sizes_(std::move(stage.output_sizes)) {
  if (stage.forward == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "Pipeline: stage " + std::to_string(number) + " has no forward");
  }
  add({.number = number,
       .module = std::move(stage.module),
       .forward = std::move(stage.forward),
       .prefix = stage.prefix.value_or("stage" + std::to_string(number) + ".")});
}

StagePart::StagePart(int number, const torch::nn::Sequential& model, int begin, int end)
    : number_(number) {
  const auto children = model->named_children();
  for (int i = begin; i < end; ++i) {
    // A copy, which shares the layer: the others can go when the caller lets go of the model.
    const torch::nn::AnyModule layer = *(model->begin() + i);
    const bool is_first = i == 0;
    add({.number = i,
         .module = layer.ptr(),
         .forward = [any = torch::nn::AnyModule(layer),
                     is_first](const Tensors& inputs) mutable -> Tensors {
           if (is_first && inputs.size() == 2) {
             return {any.forward<at::Tensor>(inputs[0], inputs[1])};
           }
           if (is_first && inputs.size() == 3) {
             return {any.forward<at::Tensor>(inputs[0], inputs[1], inputs[2])};
           }
           if (inputs.size() != 1) {
             throw Error(ErrorCode::kInvalidArgument,
                         "a layer of a Sequential takes one tensor (the first one up to three), "
                         "and gets " +
                             std::to_string(inputs.size()));
           }
           return {any.forward<at::Tensor>(inputs[0])};
         },
         .prefix = children[static_cast<std::size_t>(i)].key() + "."});
  }
}

void StagePart::add(Layer layer) {
  if (layer.module == nullptr) {
    layers_.push_back({.layer = std::move(layer), .may_draw = true});
    return;
  }
  append_distinct(layer.module->named_parameters(), layer.prefix, parameters_);
  append_distinct(layer.module->named_buffers(), layer.prefix, buffers_);
  const std::vector<PlacedTensor> placed = parallel::placed_parameters(*layer.module);
  for (std::size_t i = placed_.size(); i < parameters_.size(); ++i) {
    const NamedTensor& parameter = parameters_[i];
    const auto found = std::ranges::find_if(
        placed, [&](const PlacedTensor& other) { return other.tensor.is_same(parameter.tensor); });
    UNISONO_CHECK(found != placed.end(), "a parameter of no module");
    placed_.push_back(*found);
    placed_.back().name = parameter.name;
  }
  const bool draws = may_draw(*layer.module);
  add_groups(*layer.module, groups_);
  layers_.push_back({.layer = std::move(layer), .may_draw = draws});
}

Tensors StagePart::forward(const Tensors& inputs, const ChunkRandom& random) const {
  Tensors values = inputs;
  for (const OwnLayer& own : layers_) {
    const Layer& layer = own.layer;
    if (!own.may_draw || (layer.module != nullptr && !layer.module->is_training())) {
      values = layer.forward(values);
      continue;
    }
    const RandomTurn turn;
    seed_random(seed_of(random, layer.number));
    values = layer.forward(values);
  }
  check_outputs(values);
  return values;
}

void StagePart::check_outputs(const Tensors& outputs) const {
  for (const at::Tensor& output : outputs) {
    if (!output.defined()) {
      throw Error(ErrorCode::kInvalidArgument, "returned an undefined tensor");
    }
  }
  if (output_sizes_.empty()) {
    return;
  }
  if (outputs.size() != output_sizes_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "returned " + std::to_string(outputs.size()) + " tensors, but announced " +
                    std::to_string(output_sizes_.size()));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto fits = [](std::int64_t size, std::int64_t announced) {
      return announced == -1 || size == announced;
    };
    if (!std::ranges::equal(outputs[i].sizes(), output_sizes_[i], fits)) {
      std::ostringstream text;
      text << "returned " << describe(outputs[i]) << " as output " << i << ", but announced "
           << at::IntArrayRef(output_sizes_[i]);
      throw Error(ErrorCode::kInvalidArgument, text.str());
    }
  }
}

void StagePart::train(bool on) const {
  for (const OwnLayer& own : layers_) {
    if (own.layer.module != nullptr) {
      own.layer.module->train(on);
    }
  }
}

bool StagePart::is_trained() const {
  return std::ranges::any_of(
      parameters_, [](const NamedTensor& parameter) { return parameter.tensor.requires_grad(); });
}

}  // namespace unisono::parallel
