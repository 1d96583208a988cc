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
#include "unisono/torch/parallel/pipeline/inbox.h"
#include "unisono/torch/parallel/pipeline/product_memory.h"
#include "unisono/torch/parallel/pipeline/routes.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/stage_pass.h"
#include "unisono/torch/parallel/pipeline/transfers.h"

namespace unisono::parallel {

/// What all steps of a pipeline have in common.
struct StepPlan {
  std::shared_ptr<ProcessGroup> group;
  pipeline::Schedule schedule;
  std::vector<Route> routes;
  std::vector<std::vector<int>> batch_inputs;  ///< Those of each stage.
  std::map<int, StagePart> parts;              ///< This rank's stages.
  bool is_by_arrival = true;
  std::optional<std::chrono::milliseconds> timeout = {};

  [[nodiscard]] int last_stage() const { return schedule.n_stages() - 1; }
};

/// One step, as this rank takes part in it.
class StepRun {
 public:
  struct Options {
    /// Of each input of the batch its chunks, undefined where this rank has none of that input; of
    /// no elements for chunks that a small batch does not have.
    std::vector<Tensors> inputs;
    /// By stage, what is wrong with what it gets of the batch. The stage's first forward throws it,
    /// which waits for the stages before: of several only the first one throws, so all ranks have
    /// the same error.
    std::map<int, std::string> problems = {};
    /// Without it the step is forward alone.
    std::function<at::Tensor(const Tensors& outputs, int chunk)> loss = {};
    std::function<ChunkRandom(int chunk)> random;
    std::function<bool(int chunk)> is_checkpointed;
    bool keeps_outputs = false;
    WeightSums* weight_sums = nullptr;  ///< With a loss.
    std::size_t n_extra_places = 0;
    /// Around a stage's backward.
    std::function<void(int stage)> before_backward = [](int) {};
    std::function<void(int stage)> after_backward = [](int) {};
    /// A stage has all its gradients.
    std::function<void(int stage)> on_gradients = [](int) {};
  };

  /// Both outlive the object.
  StepRun(const StepPlan& plan, const Options& options);

  /// Does all of this rank's actions. Throws Error with stage and chunk.
  void run();

  /// The mean over the chunks, on the rank of the last stage.
  [[nodiscard]] double loss() const;

  /// The last stage's, of each chunk, on its rank, if they are kept.
  [[nodiscard]] std::vector<Delivery>& outputs() { return outputs_; }

  /// In ms since the step's begin.
  [[nodiscard]] std::vector<pipeline::Span>& spans() { return spans_; }

  /// For messages of no stage.
  [[nodiscard]] Transfers& transfers() { return transfers_; }

  /// The first of their places, of which there are `n_extra_places`.
  [[nodiscard]] std::size_t extra_place() const;

 private:
  struct Arrival {
    int route;
    bool is_gradient;
    int chunk;
  };

  struct Pass {
    std::unique_ptr<StagePass> pass;  // Null for a chunk that the batch does not have.
    int n_outputs = 0;
    std::vector<std::size_t> n_inputs = {};  // Of each route to the stage.
  };

  [[nodiscard]] std::size_t place_of(const Arrival& arrival) const;
  [[nodiscard]] std::vector<Arrival> arrivals_of(const pipeline::Action& action) const;
  [[nodiscard]] int rank_of(int stage) const;
  [[nodiscard]] std::optional<std::size_t> find_next(std::vector<std::size_t>& missing);
  void expect_next();
  void hand_over(const Arrival& arrival, int to_stage, Delivery delivery);
  void perform(const pipeline::Action& action);
  void forward(const pipeline::Action& action);
  void backward(const pipeline::Action& action);
  void send_outputs(const pipeline::Action& action, const Delivery& outputs);
  void send_gradients(const pipeline::Action& action, const Tensors& gradients);
  [[nodiscard]] std::optional<Delivery> take_inputs(const pipeline::Action& action, Pass& pass);
  [[nodiscard]] Tensors take_gradients(const pipeline::Action& action);
  template <class Work>
  auto compute(const pipeline::Action& action, const Work& work);

  using Clock = std::chrono::steady_clock;

  const StepPlan& plan_;
  const Options& options_;
  std::vector<std::vector<int>> into_;  // Routes of each stage.
  std::vector<std::vector<int>> out_of_;
  Clock::time_point begin_ = Clock::now();
  Transfers transfers_;
  pipeline::RankProgress progress_;
  std::vector<bool> is_expected_;               // By place.
  std::map<std::pair<int, int>, Pass> passes_;  // By stage and chunk.
  std::map<int, int> n_backward_;               // Of each stage.
  std::vector<double> losses_;
  std::vector<Delivery> outputs_;
  std::vector<pipeline::Span> spans_;
};

}  // namespace unisono::parallel
