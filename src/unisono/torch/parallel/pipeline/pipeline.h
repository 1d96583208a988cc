#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/parallel/pipeline/options.h"
#include "unisono/torch/parallel/pipeline/stage.h"
#include "unisono/torch/parallel/tensor/gradients.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::parallel {

/// The mean loss of a chunk, a tensor of one element, of the last stage's output and the target.
using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;
using LossOfMany = std::function<at::Tensor(const Tensors& outputs, const Tensors& targets)>;

/// What this rank did in a step.
struct PipelineStep {
  std::vector<pipeline::Span> spans;  ///< In ms since the step's begin.
  double step_ms = 0;
  double busy_ms = 0;  ///< Of it, in stages.
  /// What it had allocated for tensors since the step's begin and not yet freed, at most: also what
  /// it had received, and the gradients of parameters that had none. 0 unless `measures_memory` is
  /// set.
  std::int64_t peak_activation_bytes = 0;
};

/// A model that is cut into stages, which lie on the ranks of a group: a batch goes through them in
/// chunks, so that all ranks have something to do.
///
/// The gradients are those of one process that takes the same chunks one after the other, bit for
/// bit, whatever the schedule, the checkpoints and the number of ranks are. (A parameter that
/// several stages share has the sum of the stages' gradients, in their order.)
///
/// All ranks call the same members in the same order. Sends messages in the group, with tags from
/// 2^30 on, and other operations; nobody else uses the group meanwhile. When a rank throws in a
/// step, for a wrong batch say, its groups are closed, those of divided layers and SyncBatchNorm,
/// too, and every rank throws its message.
class Pipeline {
 public:
  /// `model` has the same layers on every rank; each keeps those of its own stages. Layers take a
  /// tensor (the first one: the inputs of the batch) and return one.
  ///
  /// A collective operation, also of `options.data_group`, whose ranks get the values of its first
  /// one. Throws Error: kInvalidArgument for more stages than layers and options of no meaning;
  /// kMismatch on all ranks where they have different schedules, options or modules.
  Pipeline(std::shared_ptr<ProcessGroup> group,
           const torch::nn::Sequential& model,
           const PipelineOptions& options = {});

  /// One for each stage of the schedule.
  Pipeline(std::shared_ptr<ProcessGroup> group,
           const std::vector<Stage>& stages,
           const PipelineOptions& options = {});

  /// Only the stages of this rank are made, by their numbers in the schedule.
  Pipeline(std::shared_ptr<ProcessGroup> group,
           const MakeStage& make_stage,
           const PipelineOptions& options = {});

  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  Pipeline(Pipeline&&) = delete;
  Pipeline& operator=(Pipeline&&) = delete;

  /// Forward and backward of all chunks: adds to the parameters' gradients what backward() of the
  /// mean loss of the batch would. Returns that loss (f64), on every rank, without gradient.
  ///
  /// Inputs are looked at on the ranks whose stages take them, targets on that of the last stage;
  /// elsewhere they may be undefined. Their first dimension is a multiple of the chunks.
  at::Tensor train_step(const at::Tensor& input, const at::Tensor& target, const Loss& loss);
  at::Tensor train_step(const Tensors& inputs, const Tensors& targets, const LossOfMany& loss);

  /// The last stage's outputs for a batch of any size, without gradients, in the mode that train()
  /// and eval() have set. Undefined (or none) on ranks without the last stage, unless
  /// `gathers_outputs` is set.
  at::Tensor forward(const at::Tensor& input);
  Tensors forward(const Tensors& inputs);

  /// Of the last train_step(), if `keeps_outputs` is set, on the rank of the last stage; else none.
  [[nodiscard]] const Tensors& outputs() const;

  // Of this rank's stages, under their names in the whole model. Tied parameters have the names in
  // other stages as aliases.

  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] std::vector<NamedTensor> named_parameters() const;
  [[nodiscard]] std::vector<NamedTensor> named_buffers() const;

  /// Parameters and buffers: the `own` of parts_to_save(). Those of several names, tied ones say,
  /// are there under each, where a rank has a stage with that name.
  [[nodiscard]] TensorState state() const;

  /// Takes this rank's parameters and buffers out of the state of a whole model, in however many
  /// parts it was saved; of several names one suffices. Throws Error(kInvalidArgument), and has
  /// changed nothing, for those that are missing or of another type or shape.
  void load_state(const TensorState& state);

  void train(bool on = true);
  void eval();
  void zero_grad(bool set_to_none = true);

  /// parallel::clip_grad_norm() of the whole model: all stages together, tied parameters once, and
  /// of layers that are divided among ranks all parts. Returns the norm before. A collective
  /// operation, also of these layers' groups.
  double clip_grad_norm(double max_norm, const ClipOptions& options = {});

  [[nodiscard]] const pipeline::Schedule& schedule() const;

  /// This rank's, in ascending order.
  [[nodiscard]] const std::vector<int>& stages() const;

  /// The rank of the last stage.
  [[nodiscard]] int last_rank() const;

  /// The number of the next step, from which random numbers follow; to be set when a training goes
  /// on.
  [[nodiscard]] std::int64_t step() const;
  void set_step(std::int64_t step);

  [[nodiscard]] const PipelineStep& last_step() const;

  /// The last step of all ranks, in ms. A collective operation. Clocks of ranks on other nodes are
  /// set by a barrier.
  [[nodiscard]] pipeline::Timeline timeline();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::parallel
