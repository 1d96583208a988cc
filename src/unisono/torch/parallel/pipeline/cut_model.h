#pragma once

#include <map>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

#include "unisono/pipeline/schedule.h"
#include "unisono/torch/parallel/pipeline/options.h"
#include "unisono/torch/parallel/pipeline/stage.h"
#include "unisono/torch/parallel/pipeline/stage_gradients.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"

namespace unisono::parallel {

/// What a rank has of a model.
struct ModelParts {
  std::map<int, StagePart> stages;  ///< Its own, by number.
  std::vector<Tie> ties;            ///< Of the whole model.
};

/// The options' schedule for so many ranks, checked. Throws Error(kInvalidArgument).
[[nodiscard]] pipeline::Schedule schedule_of(const PipelineOptions& options, int n_ranks);

/// Which inputs of the batch each stage gets. Throws Error(kInvalidArgument).
[[nodiscard]] std::vector<std::vector<int>> batch_inputs_of(const PipelineOptions& options,
                                                            int n_stages);

/// Both throw Error(kInvalidArgument) for what does not fit the schedule.
[[nodiscard]] ModelParts cut_model(const torch::nn::Sequential& model,
                                   const pipeline::Schedule& schedule,
                                   int rank,
                                   const PipelineOptions& options);
[[nodiscard]] ModelParts make_parts(const MakeStage& make_stage,
                                    const pipeline::Schedule& schedule,
                                    int rank,
                                    const PipelineOptions& options);

}  // namespace unisono::parallel
