#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/torch/nn/activation_checkpoint.h"

namespace unisono::parallel {

/// Output `output` of stage `from` goes to stage `to`, farther on, instead of to the next one. What
/// several stages need is returned several times.
struct SkipConnection {
  int from;
  int output;
  int to;
};

/// Input `input` of the batch goes to stage `stage`, besides what it gets from other stages.
struct BatchInput {
  int input;
  int stage;
};

/// Two parameters, by their names in the whole model, that are one: of a stage and of a later one.
/// Both start with the values of the first; their gradients are added.
struct TiedParameters {
  int stage;
  std::string name;
  int other_stage;
  std::string other_name;
};

struct PipelineOptions {
  /// One of those that `unisono plan pipeline` knows.
  std::string schedule = "1f1b";
  /// How many chunks a batch is cut into, along the first dimension of its tensors.
  int chunks = 1;
  /// Of interleaved_1f1b: stages on each rank.
  int stages_per_rank = 2;
  /// A schedule of one's own, of pipeline::read_csv() say, instead of these three.
  std::optional<pipeline::Schedule> table = {};
  /// Of what is kept of a chunk for its backward: kAlways, a stage's inputs, and it is computed
  /// again; kExceptLast, the same but for the last chunk.
  nn::CheckpointMode checkpoint = nn::CheckpointMode::kNever;
  /// Of a Sequential: how many layers each stage has; else what each layer costs, to cut it such
  /// that the costliest stage is as cheap as can be; neither: numbers that differ by one at most.
  std::vector<int> layers = {};
  std::vector<double> layer_costs = {};
  std::vector<SkipConnection> skips = {};
  /// Which stages get which inputs of the batch. Those that are not named here go to stage 0.
  std::vector<BatchInput> inputs = {};
  /// A Sequential's layers that share a parameter need no mention.
  std::vector<TiedParameters> tied = {};
  /// The ranks that hold the same stages in other pipelines (data parallelism): gradients and loss
  /// become the mean over them.
  std::shared_ptr<ProcessGroup> data_group = {};
  /// Of what is random in a layer (dropout): its numbers follow from the seed, the step, the chunk,
  /// the replica and the layer. Replicas draw numbers of their own.
  std::uint64_t seed = 0;
  /// forward() returns the outputs on every rank, not only on that of the last stage.
  bool gathers_outputs = false;
  /// train_step() keeps the last stage's outputs for outputs().
  bool keeps_outputs = false;
  /// Whether a rank does what has arrived when the next action of the schedule can't be done yet.
  /// Ranks with divided layers or SyncBatchNorm keep the schedule's order whatever this is, since
  /// all of their groups must do the same; false is for stages that exchange something by other
  /// means, the operations of regions.h in a module that is no ParallelLayer, say.
  bool is_by_arrival = true;
  /// Whether last_step() has the peak of memory, which costs every allocation some 100 ns.
  bool measures_memory = false;
  /// For messages and for the operations at a step's end. Default: the group's.
  std::optional<std::chrono::milliseconds> timeout = {};
};

}  // namespace unisono::parallel
