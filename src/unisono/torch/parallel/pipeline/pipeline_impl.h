#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/parallel/pipeline/cut_model.h"
#include "unisono/torch/parallel/pipeline/options.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/parallel/pipeline/product_memory.h"
#include "unisono/torch/parallel/pipeline/replica_gradients.h"
#include "unisono/torch/parallel/pipeline/stage_gradients.h"
#include "unisono/torch/parallel/pipeline/step_run.h"
#include "unisono/torch/tensor/coalesced_broadcast.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::parallel {

/// Throws Error(kInvalidArgument) where they are not as many as the schedule has.
void check_number_of_stages(std::size_t n_stages, const pipeline::Schedule& schedule);

/// Pipeline, whatever its stages were made of.
class Pipeline::Impl {
 public:
  using MakeParts = std::function<ModelParts(const pipeline::Schedule& schedule, int rank)>;

  Impl(std::shared_ptr<ProcessGroup> group,
       const PipelineOptions& options,
       const MakeParts& make_parts);

  at::Tensor train_step(const Tensors& inputs, const Tensors& targets, const LossOfMany& loss);
  Tensors forward(const Tensors& inputs);

  [[nodiscard]] const Tensors& outputs() const { return outputs_; }

  [[nodiscard]] std::vector<NamedTensor> named_parameters() const;
  [[nodiscard]] std::vector<NamedTensor> named_buffers() const;
  [[nodiscard]] TensorState state() const;
  void load_state(const TensorState& state);
  void train(bool on) const;
  void zero_grad(bool set_to_none) const;
  double clip_grad_norm(double max_norm, const ClipOptions& options);

  [[nodiscard]] const StepPlan& plan() const { return plan_; }

  [[nodiscard]] const std::vector<int>& stages() const { return stages_; }

  [[nodiscard]] int last_rank() const;

  [[nodiscard]] std::int64_t step() const { return step_; }

  void set_step(std::int64_t step) { step_ = step; }

  [[nodiscard]] const PipelineStep& last_step() const { return last_step_; }

  [[nodiscard]] pipeline::Timeline timeline();

 private:
  // Construction.
  void check_alike(const std::string& problem) const;  // All ranks.
  void collect_groups();
  void share_problem(const std::string& problem) const;
  void set_up_replicas();
  void share_tied_values();

  // What it has of the model.
  [[nodiscard]] std::vector<std::string> names_in_whole(int stage,
                                                        const NamedTensor& parameter) const;
  [[nodiscard]] bool is_first_of_tie(const PlacedParameter& place) const;
  [[nodiscard]] std::vector<at::Tensor> own_gradients() const;

  // A step.
  template <class Body>
  auto guard(const char* call, const Body& body) const;
  [[noreturn]] void fail(const char* call, ErrorCode code, std::string what) const;
  [[nodiscard]] std::string describe_lost(ErrorCode code, const std::string& what) const;

  [[nodiscard]] bool has_last_stage() const { return last_rank() == plan_.group->rank(); }

  using Problems = std::map<int, std::string>;  // As StepRun::Options has them.

  [[nodiscard]] std::vector<Tensors> cut_inputs(const Tensors& inputs,
                                                bool is_training,
                                                Problems& problems) const;
  [[nodiscard]] std::vector<Tensors> cut_targets(const Tensors& targets, Problems& problems) const;
  [[nodiscard]] std::function<ChunkRandom(int)> random() const;
  double train(StepRun& run);
  double share_loss(double loss);
  void note_step(StepRun& run, std::int64_t peak_bytes);
  Tensors gather(StepRun& run, Tensors outputs);

  PipelineOptions options_;
  StepPlan plan_;
  std::vector<Tie> ties_;
  std::vector<int> stages_;
  // Whose ranks wait for this one in a step, each once: the pipeline's, the replicas', the stages'.
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  int replica_ = 0;
  std::unique_ptr<StageGradients> gradients_;
  WeightSums weight_sums_;
  std::unique_ptr<ReplicaGradients> replicas_;          // Null without replicas.
  std::unique_ptr<CoalescedBroadcast> shared_buffers_;  // The same.
  std::int64_t step_ = 0;
  Tensors outputs_;
  PipelineStep last_step_;
  double last_begin_ms_ = 0;  // Of the last step, by the steady clock.
};

}  // namespace unisono::parallel
