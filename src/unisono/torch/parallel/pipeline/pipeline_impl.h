#pragma once

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
#include "unisono/torch/parallel/pipeline/gradients.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/parallel/pipeline/pipeline_setup.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/step_run.h"
#include "unisono/torch/parallel/pipeline/weight_products.h"

namespace unisono::parallel {

/// The implementation of Pipeline: steps, evaluation and failures. PipelineSetup constructs the
/// plan, and PipelineState gives access to the tensors. Threads and errors: see Pipeline.
class Pipeline::Impl {
 public:
  Impl(std::shared_ptr<ProcessGroup> group,
       const PipelineOptions& options,
       const MakeParts& make_parts);

  at::Tensor train_step(const Tensors& inputs, const Tensors& targets, const LossOfMany& loss);
  Tensors forward(const Tensors& inputs);

  [[nodiscard]] const Tensors& outputs() const { return outputs_; }

  double clip_grad_norm(double max_norm, const ClipOptions& options);

  [[nodiscard]] const PipelineState& state() const { return state_; }

  [[nodiscard]] const PipelineLayout& plan() const { return plan_; }

  [[nodiscard]] const std::vector<int>& stages() const { return stages_; }

  [[nodiscard]] int last_rank() const;

  [[nodiscard]] std::int64_t step() const { return step_; }

  void set_step(std::int64_t step) { step_ = step; }

  [[nodiscard]] const PipelineStep& last_step() const { return last_step_; }

  [[nodiscard]] pipeline::Timeline timeline();

 private:
  template <class Body>
  auto guard(const char* call, const Body& body) const;
  [[noreturn]] void fail(const char* call, ErrorCode code, std::string what) const;
  [[nodiscard]] std::string describe_lost(ErrorCode code, const std::string& what) const;

  [[nodiscard]] bool has_last_stage() const { return last_rank() == plan_.group->rank(); }

  using Problems = std::map<int, std::string>;  // The errors of StepRun::Options.

  [[nodiscard]] std::vector<Tensors> cut_inputs(const Tensors& inputs,
                                                bool is_training,
                                                Problems& problems) const;
  [[nodiscard]] std::vector<Tensors> cut_targets(const Tensors& targets, Problems& problems) const;
  [[nodiscard]] std::function<ChunkRandom(int)> random() const;
  // Devices whose random generators a step may use.
  [[nodiscard]] RandomDevices random_devices(const Tensors& inputs) const;
  double train(StepRun& run);
  double share_loss(double loss);
  void note_step(StepRun& run, std::int64_t peak_bytes);
  Tensors gather(StepRun& run, Tensors outputs);

  PipelineOptions options_;
  PipelineLayout plan_;
  std::vector<Tie> ties_;
  PipelineState state_;
  std::vector<int> stages_;
  // All groups with ranks that wait for this rank in a step.
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  int replica_ = 0;
  std::unique_ptr<StageGradients> gradients_;
  WeightSums weight_sums_;
  Replicas replicas_;  // Null pointers without replicas.
  std::int64_t step_ = 0;
  Tensors outputs_;
  PipelineStep last_step_;
  double last_begin_ms_ = 0;  // The start of the last step by the steady clock.
};

}  // namespace unisono::parallel
