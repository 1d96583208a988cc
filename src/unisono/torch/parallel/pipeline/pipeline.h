#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace unisono::parallel {

/// Inputs or outputs of a stage, in order.
using Tensors = std::vector<at::Tensor>;

/// A part of a model that maps a chunk of the batch to the inputs of later stages.
struct Stage {
  /// The module that holds the trained parameters. May be null.
  std::shared_ptr<torch::nn::Module> module;
  /// Called on the thread of the step. `inputs` holds, in this order: outputs of the previous
  /// stage, outputs of skip connections, and inputs of the batch.
  std::function<Tensors(const Tensors& inputs)> forward;
  /// Prefix of parameter names in the whole model: "encoder.". Default: "stage0.", "stage1.", ...
  std::optional<std::string> prefix = {};
  /// Required sizes of each output; -1 allows any size. Empty: no check.
  std::vector<std::vector<std::int64_t>> output_sizes = {};
};

/// Makes stage `number`. Called only for the stages of this rank.
using MakeStage = std::function<Stage(int number)>;

/// Returns a stage of a module holder, such as torch::nn::Linear, that takes and returns one
/// tensor.
template <class Module>
[[nodiscard]] Stage stage_of(Module module) {
  return {.module = module.ptr(), .forward = [module](const Tensors& inputs) mutable -> Tensors {
            return {module->forward(inputs.at(0))};
          }};
}

/// Sends output `output` of stage `from` to the later stage `to` instead of the next stage. If
/// several stages need a tensor, the stage returns the tensor once for each of them.
struct SkipConnection {
  int from;
  int output;
  int to;
};

/// Input `input` of the batch goes to stage `stage`, after the inputs from other stages.
struct BatchInput {
  int input;
  int stage;
};

/// A parameter of a stage and a parameter of a later stage that act as a single parameter. Names
/// refer to the whole model. Both start with the values of the first parameter; the gradients are
/// added.
struct TiedParameters {
  int stage;
  std::string name;
  int other_stage;
  std::string other_name;
};

/// Options of a Pipeline. The constructor throws kMismatch if ranks differ in schedule, chunks,
/// skips, inputs, ties, checkpoint mode, seed or gathers_outputs.
struct PipelineOptions {
  /// Name of a schedule, as `unisono plan pipeline` lists, or PyTorch's name of the schedule.
  std::string schedule = "1f1b";
  /// Number of chunks of a batch. The batch is cut along the first dimension.
  int chunks = 1;
  /// Number of stages on each rank, for interleaved_1f1b.
  int stages_per_rank = 2;
  /// A custom schedule, for example from pipeline::read_csv(), in place of the three options above.
  std::optional<pipeline::Schedule> table = {};
  /// kAlways stores only a stage's inputs of a chunk, and computes the stage again in backward.
  /// kExceptLast does so for all chunks except the last.
  nn::CheckpointMode checkpoint = nn::CheckpointMode::kNever;
  /// The cut of a Sequential. `layers`: the number of layers of each stage. `layer_costs`: the cost
  /// of each layer; the cut minimizes the cost of the most expensive stage. If both are empty,
  /// stages have equal numbers of layers, up to a difference of 1.
  std::vector<int> layers = {};
  /// Cost of each layer, for a cut of equal costs.
  std::vector<double> layer_costs = {};
  /// Outputs that go to a later stage than the next.
  std::vector<SkipConnection> skips = {};
  /// The stages of the inputs of the batch. Inputs without an entry go to stage 0.
  std::vector<BatchInput> inputs = {};
  /// Additional ties. Layers of a Sequential that share a parameter need no entry.
  std::vector<TiedParameters> tied = {};
  /// The ranks with the same stages in other pipelines (data parallelism). Gradients and loss
  /// become the mean over these ranks.
  std::shared_ptr<ProcessGroup> data_group = {};
  /// The seed of random numbers in layers (dropout), which are determined by seed, step, chunk,
  /// replica and layer. Replicas draw different numbers.
  std::uint64_t seed = 0;
  /// forward() returns the outputs on every rank, not only on the rank of the last stage.
  bool gathers_outputs = false;
  /// train_step() keeps the last stage's outputs for outputs().
  bool keeps_outputs = false;
  /// True: a rank whose next action must wait runs a later action whose inputs have arrived. Ranks
  /// with divided layers or SyncBatchNorm always keep the order of the schedule, because all ranks
  /// of their groups must do the same. Set false for stages that communicate by other means, such
  /// as the operations of functions.h in a module that is no ParallelLayer.
  bool is_by_arrival = true;
  /// Records the peak of memory for last_step(), at a cost of about 100 ns per allocation.
  bool measures_memory = false;
  /// Timeout of messages and of the operations at the end of a step. Default: the group's timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// Returns the mean loss of a chunk, a tensor of one element, from the last stage's output and the
/// target.
using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;
/// A Loss for stages with several outputs, and for several targets.
using LossOfMany = std::function<at::Tensor(const Tensors& outputs, const Tensors& targets)>;

/// Measurements of a step on this rank.
struct PipelineStep {
  std::vector<pipeline::Span> spans;  ///< In ms since the start of the step.
  double step_ms = 0;
  double busy_ms = 0;  ///< The part of `step_ms` inside stages.
  /// Peak of memory allocated for tensors since the start of the step, including received messages
  /// and new gradients. 0 unless `measures_memory` is set.
  std::int64_t peak_activation_bytes = 0;
};

/// A model that is cut into stages on the ranks of a group. A batch passes through the stages in
/// chunks, so that the ranks compute at the same time.
///
/// The gradients equal, bit for bit, the gradients of a single process that computes the same
/// chunks in order, for every schedule, checkpoint mode and number of ranks. (A parameter of
/// several stages receives the sum of the stages' gradients, in the order of the stages.)
///
/// The object holds the groups and the layers of this rank's stages. Not thread-safe. All ranks
/// call the same members in the same order. A step uses the group exclusively, for messages with
/// tags from 2^30 on and for other operations.
///
/// If a rank throws in a step, for example for a wrong batch, all groups of the rank are aborted,
/// including the groups of divided layers and SyncBatchNorm, and every rank throws the message of
/// that rank.
class Pipeline {
 public:
  /// `model` has the same layers on every rank; a rank keeps the layers of the rank's stages. Each
  /// layer takes a tensor (the first layer takes the inputs of the batch) and returns a tensor.
  ///
  /// A collective operation, also of `options.data_group`: all replicas receive the values of
  /// replica 0. Throws Error(kInvalidArgument) for more stages than layers and for invalid options,
  /// and kMismatch on all ranks for different schedules, options or modules.
  Pipeline(std::shared_ptr<ProcessGroup> group,
           const torch::nn::Sequential& model,
           const PipelineOptions& options = {});

  /// `stages` has an element for each stage of the schedule.
  Pipeline(std::shared_ptr<ProcessGroup> group,
           const std::vector<Stage>& stages,
           const PipelineOptions& options = {});

  /// Calls `make_stage` only for the stages of this rank, with the stages' numbers in the schedule.
  Pipeline(std::shared_ptr<ProcessGroup> group,
           const MakeStage& make_stage,
           const PipelineOptions& options = {});

  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  Pipeline(Pipeline&&) = delete;
  Pipeline& operator=(Pipeline&&) = delete;

  /// Runs forward and backward of all chunks. Adds the gradients of the mean loss of the batch to
  /// the parameters' gradients. Returns the loss (f64) on every rank, without gradient.
  ///
  /// Inputs are read on the ranks of the stages that take them, and targets on the rank of the last
  /// stage; on other ranks both may be undefined. The size of the first dimension is a multiple of
  /// the number of chunks.
  at::Tensor train_step(const at::Tensor& input, const at::Tensor& target, const Loss& loss);
  at::Tensor train_step(const Tensors& inputs, const Tensors& targets, const LossOfMany& loss);

  /// Returns the last stage's outputs for a batch of any size, without gradients, in the mode of
  /// the last train() or eval(). Undefined (or empty) on ranks without the last stage, unless
  /// `gathers_outputs` is set.
  at::Tensor forward(const at::Tensor& input);
  Tensors forward(const Tensors& inputs);

  /// Outputs of the last train_step() if `keeps_outputs` is set, on the rank of the last stage;
  /// otherwise empty.
  [[nodiscard]] const Tensors& outputs() const;

  // Tensors of this rank's stages, with names in the whole model. The names of a tied parameter in
  // other stages are aliases.

  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] std::vector<NamedTensor> named_parameters() const;
  [[nodiscard]] std::vector<NamedTensor> named_buffers() const;

  /// Returns parameters and buffers: the `own` of parts_to_save(). A tensor with several names (a
  /// tied parameter) appears under each name that a stage of this rank has.
  [[nodiscard]] TensorState state() const;

  /// Copies this rank's parameters and buffers from the state of a whole model, saved in any number
  /// of parts. For a tensor with several names, one of the names suffices. Throws
  /// Error(kInvalidArgument), without any change, for a tensor that is missing or has another type
  /// or shape.
  void load_state(const TensorState& state);

  void train(bool on = true);
  void eval();
  void zero_grad(bool set_to_none = true);

  /// Applies parallel::clip_grad_norm() to the whole model: all stages, tied parameters once, and
  /// all parts of divided layers. Returns the norm before clipping. A collective operation, also of
  /// the groups of divided layers.
  double clip_grad_norm(double max_norm, const ClipOptions& options = {});

  [[nodiscard]] const pipeline::Schedule& schedule() const;

  /// The stages of this rank, in ascending order.
  [[nodiscard]] const std::vector<int>& stages() const;

  /// The rank of the last stage.
  [[nodiscard]] int last_rank() const;

  /// Number of the next step, which seeds random numbers. Set the number when training is resumed.
  [[nodiscard]] std::int64_t step() const;
  /// Sets the number of the next step.
  void set_step(std::int64_t step);

  [[nodiscard]] const PipelineStep& last_step() const;

  /// Returns the last step of all ranks, in ms. A collective operation. A barrier aligns the clocks
  /// of different nodes.
  [[nodiscard]] pipeline::Timeline timeline();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Options of measure_layers().
struct LayerMeasurement {
  /// Number of forward and backward passes of the chunk, for each of the two kinds of backward.
  int trials = 5;
  /// Loss of the last layer's output; the time of the loss counts for that layer. Null: no loss.
  std::function<at::Tensor(const at::Tensor& output)> loss = {};
};

/// Measures the costs of each layer for a chunk on this machine, computed as in a stage of a
/// Pipeline: medians of the trials in milliseconds, and MiB. `chunk` has the inputs of the first
/// layer, in the sizes of a chunk of a step. pipeline::to_csv() writes the result for `unisono plan
/// pipeline --layer-times`.
///
/// Backward is measured in one pass, and the share of weight gradients in two passes. Activations
/// are the memory that a layer adds until the chunk's backward, without memory that the next layer
/// frees (0 while a profiler of LibTorch runs).
///
/// The mode, values and gradients of the model and the state of the random generator are restored.
/// Runs on the calling thread with the thread's compute threads, and is not collective. Ranks that
/// share a machine should measure at the same time, because training computes on all ranks at the
/// same time.
///
/// The cost is 2 * (trials + 1) passes, and memory for all gradients and for one chunk's
/// activations in the whole model. Throws Error(kInvalidArgument) without trials, layers or inputs,
/// and for an exception of a layer, with the layer's name.
[[nodiscard]] pipeline::LayerCosts measure_layers(const torch::nn::Sequential& model,
                                                  const Tensors& chunk,
                                                  const LayerMeasurement& options = {});

}  // namespace unisono::parallel
