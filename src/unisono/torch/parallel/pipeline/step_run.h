#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/next_action.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/stage_pass.h"
#include "unisono/torch/parallel/pipeline/transfers.h"
#include "unisono/torch/parallel/pipeline/weight_products.h"

namespace unisono::parallel {

/// The common plan of all steps of a pipeline.
struct PipelineLayout {
  std::shared_ptr<ProcessGroup> group;
  pipeline::Schedule schedule;
  std::vector<Route> routes;
  std::vector<std::vector<int>> batch_inputs;  ///< By stage.
  std::map<int, StagePart> parts;              ///< This rank's stages.
  bool is_by_arrival = true;
  std::optional<std::chrono::milliseconds> timeout = {};

  [[nodiscard]] int last_stage() const { return schedule.n_stages() - 1; }

  /// The device of this rank's stages; the CPU for stages without tensors.
  [[nodiscard]] at::Device device() const {
    for (const auto& [stage, part] : parts) {
      if (!part.device().is_cpu()) {
        return part.device();
      }
    }
    return at::kCPU;
  }
};

/// A step on this rank. Runs on a single thread. The plan and the options must outlive the object.
/// Errors name the stage and the chunk.
class StepRun {
 public:
  struct Options {
    /// The chunks of each input of the batch. A chunk is undefined if the rank does not have the
    /// input or a small batch has fewer chunks.
    std::vector<Tensors> inputs;
    /// Errors in the batch, by stage. The stage's first forward throws the error. That forward
    /// waits for earlier stages, so only the first of several errors is thrown, the same on all
    /// ranks.
    std::map<int, std::string> problems = {};
    /// Null: the step has no backward pass.
    std::function<at::Tensor(const Tensors& outputs, int chunk)> loss = {};
    std::function<ChunkRandom(int chunk)> random;
    std::function<bool(int chunk)> is_checkpointed;
    bool keeps_outputs = false;
    WeightSums* weight_sums = nullptr;  ///< Not null with a loss.
    std::size_t n_extra_slots = 0;
    /// Called before and after the backward pass of a stage.
    std::function<void(int stage)> before_backward = [](int) {};
    std::function<void(int stage)> after_backward = [](int) {};
    /// Called when the gradients of a stage are complete.
    std::function<void(int stage)> on_gradients = [](int) {};
  };

  StepRun(const PipelineLayout& plan, const Options& options);

  /// Runs all actions of this rank. Throws Error with stage and chunk.
  void run();

  /// Returns the mean loss of the chunks, on the rank of the last stage.
  [[nodiscard]] double loss() const;

  /// The kept outputs of the last stage for each chunk, on the rank of that stage.
  [[nodiscard]] std::vector<StageMessage>& outputs() { return outputs_; }

  /// In ms since the start of the step.
  [[nodiscard]] std::vector<pipeline::Span>& spans() { return spans_; }

  /// The transfers of the step, for messages that belong to no stage.
  [[nodiscard]] Transfers& transfers() { return transfers_; }

  /// Returns the first of the `n_extra_slots` slots for such messages.
  [[nodiscard]] std::size_t extra_slot() const;

 private:
  /// A message that an action needs.
  struct Expected {
    int route;
    bool is_gradient;
    int chunk;
  };

  struct Pass {
    std::unique_ptr<StagePass> pass;  // Null for a chunk that a small batch lacks.
    int n_outputs = 0;
    std::vector<std::size_t> n_inputs = {};  // One for each route to the stage.
  };

  [[nodiscard]] std::size_t slot_of(const Expected& expected) const;
  [[nodiscard]] std::vector<Expected> expected_of(const pipeline::Action& action) const;
  [[nodiscard]] int rank_of(int stage) const;
  [[nodiscard]] std::optional<std::size_t> find_next(std::vector<std::size_t>& missing);
  void expect_next();
  void hand_over(const Expected& expected, int to_stage, StageMessage message);
  void perform(const pipeline::Action& action);
  void forward(const pipeline::Action& action);
  void backward(const pipeline::Action& action);
  void send_outputs(const pipeline::Action& action, const StageMessage& outputs);
  void send_gradients(const pipeline::Action& action, const Tensors& gradients);
  [[nodiscard]] std::optional<StageMessage> take_inputs(const pipeline::Action& action, Pass& pass);
  [[nodiscard]] Tensors take_gradients(const pipeline::Action& action);
  template <class Work>
  auto compute(const pipeline::Action& action, const Work& work);

  using Clock = std::chrono::steady_clock;

  const PipelineLayout& plan_;
  const Options& options_;
  std::vector<std::vector<int>> into_;  // Indices of routes, by stage.
  std::vector<std::vector<int>> out_of_;
  Clock::time_point begin_ = Clock::now();
  Transfers transfers_;
  pipeline::ScheduleProgress progress_;
  std::vector<bool> is_expected_;               // By slot.
  std::map<std::pair<int, int>, Pass> passes_;  // By stage and chunk.
  std::map<int, int> n_backward_;               // Number of backward passes so far, by stage.
  std::vector<at::Tensor> losses_;  // By chunk, on the device; undefined for a missing chunk.
  std::vector<StageMessage> outputs_;
  std::vector<pipeline::Span> spans_;
};

}  // namespace unisono::parallel
