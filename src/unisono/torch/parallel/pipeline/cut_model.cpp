#include "unisono/torch/parallel/pipeline/cut_model.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/balance.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/validate.h"
#include "unisono/torch/parallel/pipeline/options.h"
#include "unisono/torch/parallel/pipeline/stage.h"
#include "unisono/torch/parallel/pipeline/stage_gradients.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::parallel {

using pipeline::as_index;

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

// Parameters of several stages of the model, whose parts are all there.
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
