#include "unisono/torch/parallel/pipeline/stage_part.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/data/random.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/torch/nn/sync_batch_norm.h"
#include "unisono/torch/tensor/random_state.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

using pipeline::as_index;

namespace {

// Returns true for modules that draw random numbers, or may call code that does.
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
      data::Random::of_sample(static_cast<std::int64_t>(random.seed), random.step, random.chunk)
          .next();
  return data::Random(of_chunk + static_cast<std::uint64_t>(layer)).next();
}

// Returns the devices on which a layer with these inputs may draw random numbers.
RandomDevices drawing_devices(const Tensors& inputs, at::Device of_parameters) {
  RandomDevices devices = accelerators_of(inputs);
  if (!of_parameters.is_cpu() && std::ranges::find(devices, of_parameters) == devices.end()) {
    devices.push_back(of_parameters);
  }
  return devices;
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
    // The copy shares only this layer, so the caller can free the model and thereby the other
    // layers.
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

at::Device StagePart::device() const {
  if (!parameters_.empty()) {
    return parameters_.front().tensor.device();
  }
  return buffers_.empty() ? at::Device(at::kCPU) : buffers_.front().tensor.device();
}

Tensors StagePart::forward(const Tensors& inputs, const ChunkRandom& random) const {
  Tensors values = inputs;
  for (const OwnLayer& own : layers_) {
    const Layer& layer = own.layer;
    if (!own.may_draw || (layer.module != nullptr && !layer.module->is_training())) {
      values = layer.forward(values);
      continue;
    }
    const RandomDevices devices = drawing_devices(values, device());
    const RandomTurn turn(devices);
    seed_random(seed_of(random, layer.number), devices);
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

namespace {

[[noreturn]] void reject_cut(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "Pipeline: " + problem);
}

std::vector<pipeline::LayerRange> cut_layers(int n_layers,
                                             int n_stages,
                                             const PipelineOptions& options) {
  if (n_layers < n_stages) {
    reject_cut("the model has " + std::to_string(n_layers) + " layers, and the schedule " +
               std::to_string(n_stages) + " stages; each needs a layer");
  }
  if (!options.layers.empty()) {
    std::vector<pipeline::LayerRange> ranges;
    int begin = 0;
    for (const int count : options.layers) {
      if (count < 1) {
        reject_cut("a stage of " + std::to_string(count) + " layers");
      }
      ranges.push_back({.begin = begin, .end = begin + count});
      begin += count;
    }
    if (begin != n_layers || static_cast<int>(ranges.size()) != n_stages) {
      reject_cut("`layers` has " + std::to_string(begin) + " layers in " +
                 std::to_string(ranges.size()) + " stages; the model has " +
                 std::to_string(n_layers) + ", and the schedule " + std::to_string(n_stages) +
                 " stages");
    }
    return ranges;
  }
  if (!options.layer_costs.empty()) {
    if (static_cast<int>(options.layer_costs.size()) != n_layers) {
      reject_cut("`layer_costs` has " + std::to_string(options.layer_costs.size()) +
                 " costs, and the model " + std::to_string(n_layers) + " layers");
    }
    return pipeline::cut_by_cost(options.layer_costs, n_stages);
  }
  return pipeline::cut_evenly(n_layers, n_stages);
}

bool has_parameter(const StagePart& part, const std::string& name) {
  return std::ranges::any_of(part.parameters(),
                             [&](const NamedTensor& parameter) { return parameter.name == name; });
}

// Returns the parameters that several stages share.
std::vector<Tie> find_ties(const std::map<int, StagePart>& parts) {
  std::vector<std::pair<at::Tensor, Tie>> found;
  for (const auto& [stage, part] : parts) {
    for (const NamedTensor& parameter : part.parameters()) {
      const auto same = std::ranges::find_if(
          found, [&](const auto& other) { return other.first.is_same(parameter.tensor); });
      const PlacedParameter place{.stage = stage, .name = parameter.name};
      if (same == found.end()) {
        found.emplace_back(parameter.tensor, Tie{place});
      } else {
        same->second.push_back(place);
      }
    }
  }
  std::vector<Tie> ties;
  for (auto& [tensor, tie] : found) {
    if (tie.size() > 1) {
      ties.push_back(std::move(tie));
    }
  }
  return ties;
}

void add_ties(const std::vector<TiedParameters>& tied, int n_stages, std::vector<Tie>& ties) {
  for (const TiedParameters& pair : tied) {
    if (pair.stage < 0 || pair.other_stage <= pair.stage || pair.other_stage >= n_stages) {
      reject_cut("parameter '" + pair.name + "' of stage " + std::to_string(pair.stage) +
                 " is tied to one of stage " + std::to_string(pair.other_stage) +
                 "; that must be a later one of " + std::to_string(n_stages));
    }
    const PlacedParameter first{.stage = pair.stage, .name = pair.name};
    const PlacedParameter other{.stage = pair.other_stage, .name = pair.other_name};
    const auto known =
        std::ranges::find_if(ties, [&](const Tie& tie) { return tie.front() == first; });
    if (known == ties.end()) {
      ties.push_back({first, other});
    } else {
      known->push_back(other);
      std::ranges::sort(*known);
    }
  }
}

void check_ties(const ModelParts& parts) {
  for (const Tie& tie : parts.ties) {
    for (const PlacedParameter& place : tie) {
      const auto part = parts.stages.find(place.stage);
      if (part != parts.stages.end() && !has_parameter(part->second, place.name)) {
        reject_cut("stage " + std::to_string(place.stage) + " has no parameter '" + place.name +
                   "', which is to be tied");
      }
    }
  }
}

}  // namespace

pipeline::Schedule schedule_of(const PipelineOptions& options, int n_ranks) {
  if (options.table) {
    pipeline::validate(*options.table);
    if (options.table->n_ranks() != n_ranks) {
      reject_cut("the schedule's table is one of " + std::to_string(options.table->n_ranks()) +
                 " ranks, but the group has " + std::to_string(n_ranks));
    }
    return *options.table;
  }
  if (options.chunks < 1 || options.stages_per_rank < 1) {
    reject_cut(std::to_string(options.chunks) + " chunks and " +
               std::to_string(options.stages_per_rank) + " stages per rank; the least is 1");
  }
  return pipeline::find_schedule(options.schedule)
      .make({.n_ranks = n_ranks,
             .n_chunks = options.chunks,
             .stages_per_rank = options.stages_per_rank});
}

std::vector<std::vector<int>> batch_inputs_of(const PipelineOptions& options, int n_stages) {
  std::vector<std::vector<int>> of_stages(as_index(n_stages));
  int n_inputs = 1;
  for (const BatchInput& input : options.inputs) {
    if (input.stage < 0 || input.stage >= n_stages || input.input < 0) {
      reject_cut("input " + std::to_string(input.input) + " of the batch is to go to stage " +
                 std::to_string(input.stage) + " of " + std::to_string(n_stages));
    }
    n_inputs = std::max(n_inputs, input.input + 1);
  }
  for (int input = 0; input < n_inputs; ++input) {
    bool is_named = false;
    for (const BatchInput& named : options.inputs) {
      if (named.input == input) {
        of_stages[as_index(named.stage)].push_back(input);
        is_named = true;
      }
    }
    if (!is_named) {
      of_stages[0].push_back(input);
    }
  }
  return of_stages;
}

ModelParts cut_model(const torch::nn::Sequential& model,
                     const pipeline::Schedule& schedule,
                     int rank,
                     const PipelineOptions& options) {
  const std::vector<pipeline::LayerRange> ranges =
      cut_layers(static_cast<int>(model->size()), schedule.n_stages(), options);
  std::map<int, StagePart> all;
  for (int stage = 0; stage < schedule.n_stages(); ++stage) {
    const pipeline::LayerRange& range = ranges[as_index(stage)];
    all.emplace(stage, StagePart(stage, model, range.begin, range.end));
  }
  ModelParts parts{.stages = {}, .ties = find_ties(all)};
  add_ties(options.tied, schedule.n_stages(), parts.ties);
  for (auto& [stage, part] : all) {
    if (schedule.rank_of_stage[as_index(stage)] == rank) {
      parts.stages.emplace(stage, std::move(part));
    }
  }
  check_ties(parts);
  return parts;
}

ModelParts make_parts(const MakeStage& make_stage,
                      const pipeline::Schedule& schedule,
                      int rank,
                      const PipelineOptions& options) {
  ModelParts parts;
  for (int stage = 0; stage < schedule.n_stages(); ++stage) {
    if (schedule.rank_of_stage[as_index(stage)] == rank) {
      parts.stages.emplace(stage, StagePart(stage, make_stage(stage)));
    }
  }
  add_ties(options.tied, schedule.n_stages(), parts.ties);
  check_ties(parts);
  return parts;
}

}  // namespace unisono::parallel
