// Checkpoints of pipelines, loaded with other numbers of parts.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/save.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "pipelines.h"
#include "rank_threads.h"
#include "support/temporary_folder.h"

namespace unisono::testing {
namespace {

using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;

constexpr std::int64_t kRowsOfBatch = 8;

TEST(PipelineCheckpoint, OfTwoPartsIsReadInOneAndInFour) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/model";
  torch::Tensor expected;
  std::mutex mutex;
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_chain(), PipelineOptions{.chunks = 2, .gathers_outputs = true});
    torch::optim::SGD optimizer(model.parameters(), 0.3);
    (void)model.train_step(make_batch(kRowsOfBatch), make_targets(kRowsOfBatch), loss_of_classes);
    optimizer.step();
    const StateParts parts = parts_to_save(*group, {}, model.state());
    checkpoint::save_checkpoint(*group, path, 1, parts.parts, {}, parts.common);
    model.eval();
    const torch::Tensor output = model.forward(make_batch(kRowsOfBatch));
    const std::lock_guard lock(mutex);
    expected = output;
  });
  for (const int n_parts : {1, 4}) {
    run_ranks(n_parts, [&](const std::shared_ptr<ProcessGroup>& group) {
      Pipeline model(group, make_chain(), PipelineOptions{.chunks = 2, .gathers_outputs = true});
      model.load_state(load_state(*group, path));
      model.eval();
      EXPECT_TRUE(torch::equal(model.forward(make_batch(kRowsOfBatch)), expected)) << n_parts;
    });
  }
}

TEST(PipelineCheckpoint, AStateThatLacksSomethingChangesNothing) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_chain(), {});
    TensorState state = model.state();
    state["0.weight"] = torch::zeros({8, 6});
    state.erase("11.bias");
    EXPECT_THROW(model.load_state(state), Error);
    state["11.bias"] = torch::zeros({4});
    EXPECT_THROW(model.load_state(state), Error);
    EXPECT_EQ(difference(model.state(), module_state(*make_chain())), "");
    state["11.bias"] = torch::zeros({3});
    model.load_state(state);
    EXPECT_EQ(model.parameters()[0].abs().sum().item<double>(), 0);
  });
}

TEST(PipelineCheckpoint, TensorsOfOneNameAreRefused) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<parallel::Stage> stages{parallel::stage_of(torch::nn::Linear(6, 6)),
                                        parallel::stage_of(torch::nn::Linear(6, 6))};
    stages[0].prefix = "both.";
    stages[1].prefix = "both.";
    const Pipeline model(group, stages, PipelineOptions{.schedule = "interleaved_1f1b"});
    EXPECT_THAT(
        [&] { (void)model.state(); },
        ::testing::ThrowsMessage<Error>(::testing::HasSubstr("two tensors are named 'both.")));
  });
}

// Two replicas of a pipeline with their optimizer.
class Training {
 public:
  Training(const std::shared_ptr<ProcessGroup>& world, const torch::nn::Sequential& layers)
      : mesh_(world, {{"data", 2}, {"pipe", world->world_size() / 2}}),
        model_(mesh_.group("pipe"),
               layers,
               PipelineOptions{.chunks = 4, .data_group = mesh_.group("data")}),
        optimizer_(model_.parameters(), torch::optim::AdamOptions(0.05).amsgrad(true)) {}

  void train(int n_steps) {
    for (int i = 0; i < n_steps; ++i) {
      optimizer_.zero_grad();
      const std::int64_t begin = mesh_.coordinate("data") + model_.step();
      (void)model_.train_step(make_batch(2 * kRowsOfBatch).narrow(0, begin, kRowsOfBatch),
                              make_targets(2 * kRowsOfBatch).narrow(0, begin, kRowsOfBatch),
                              loss_of_classes);
      optimizer_.step();
    }
  }

  // Returns the parameters and their optimizer state under names that no other part has.
  [[nodiscard]] TensorState own_state() const {
    TensorState state = model_.state();
    for (const auto& [name, tensor] : optimizer_state(optimizer_, model_.named_parameters())) {
      if (!is_option(name)) {
        state.emplace("optimizer." + name, tensor);
      }
    }
    return state;
  }

  // Only the first replica saves.
  void save(const std::string& path) const {
    if (mesh_.coordinate("data") == 0) {
      TensorState options;
      for (const auto& [name, tensor] : optimizer_state(optimizer_, model_.named_parameters())) {
        if (is_option(name)) {
          options.emplace("optimizer." + name, tensor);
        }
      }
      ProcessGroup& group = *mesh_.group("pipe");
      const StateParts parts = parts_to_save(group, options, own_state());
      checkpoint::save_checkpoint(group, path, model_.step(), parts.parts, {}, parts.common);
    }
    mesh_.world()->barrier();
  }

  void load(const std::string& path, std::int64_t step) {
    const TensorState state = load_state(*mesh_.world(), path);
    model_.load_state(state);
    TensorState own;
    for (const auto& [name, tensor] : state_below(state, "optimizer.")) {
      if (is_option(name) || is_of_own_parameter(name)) {
        own.emplace(name, tensor);
      }
    }
    load_optimizer_state(optimizer_, model_.named_parameters(), own);
    model_.set_step(step);
  }

 private:
  static bool is_option(const std::string& name) { return name.starts_with("options."); }

  [[nodiscard]] bool is_of_own_parameter(const std::string& name) const {
    return std::ranges::any_of(model_.named_parameters(), [&](const NamedTensor& parameter) {
      return std::ranges::any_of(names_of(parameter), [&](const std::string& own) {
        return name.starts_with("state." + own + ".");
      });
    });
  }

  Mesh mesh_;
  Pipeline model_;
  torch::optim::Adam optimizer_;
};

// Compares models of `make_layers()`, which has enough layers for four parts, saved in one part and
// in two.
template <class MakeLayers>
void expect_same_future(const MakeLayers& make_layers, double tolerance) {
  constexpr int kUntil = 3;
  const test::TemporaryFolder folder;
  const auto path_of = [&](int n_parts) { return folder.path() + "/" + std::to_string(n_parts); };
  Named expected;
  std::mutex mutex;
  for (const int n_parts : {1, 2}) {
    run_ranks(2 * n_parts, [&](const std::shared_ptr<ProcessGroup>& world) {
      Training training(world, make_layers());
      training.train(kUntil);
      training.save(path_of(n_parts));
      training.train(kUntil);
      const TensorState state = training.own_state();
      const std::lock_guard lock(mutex);
      for (const auto& [name, tensor] : state) {
        expected[name] = tensor.clone();
      }
    });
  }
  for (const int n_saved : {1, 2}) {
    for (const int n_parts : {1, 2, 4}) {
      run_ranks(2 * n_parts, [&](const std::shared_ptr<ProcessGroup>& world) {
        Training training(world, make_layers());
        training.train(1);  // The load must replace this state.
        training.load(path_of(n_saved), kUntil);
        training.train(kUntil);
        EXPECT_LE(relative_difference(training.own_state(), expected), tolerance)
            << n_parts << " parts, saved in " << n_saved;
      });
    }
  }
}

TEST(PipelineCheckpoint, ReplicasAndTheirOptimizerGoOnInOtherNumbersOfParts) {
  expect_same_future([] { return make_chain(); }, 0);
}

TEST(PipelineCheckpoint, TiedWeightsAndTheirOptimizerGoOnInOtherNumbersOfParts) {
  // A single part adds the gradients of both layers in another order.
  expect_same_future([] { return make_tied_chain(); }, 1e-4);
}

}  // namespace
}  // namespace unisono::testing
