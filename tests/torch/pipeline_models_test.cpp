// Models that are not a plain chain: skip connections, several inputs, changing shapes, tied
// weights.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/tensor/tensor.h"

#include "canonical.h"
#include "pipelines.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Stage;
using parallel::Tensors;

// Returns a stage of a linear layer and a function of its output.
Stage linear_stage(std::int64_t n_in,
                   std::int64_t n_out,
                   double phase,
                   std::function<Tensors(torch::nn::Linear&, const Tensors&)> forward) {
  torch::nn::Linear layer(n_in, n_out);
  const torch::NoGradGuard no_grad;
  layer->weight.copy_(torch::sin(torch::arange(n_in * n_out) * 0.9 + phase).view({n_out, n_in}));
  layer->bias.copy_(torch::cos(torch::arange(n_out) * 0.8 + phase));
  return {.module = layer.ptr(),
          .forward = [layer, forward = std::move(forward)](const Tensors& inputs) mutable {
            return forward(layer, inputs);
          }};
}

// Two outputs of stage 0 skip stages: output 1 goes to stage 2, and output 3 to the last stage.
// Integers accompany floats, and stage 3 also gets the batch's second input.
std::vector<Stage> make_branching() {
  return {linear_stage(6,
                       5,
                       0.1,
                       [](auto& layer, const Tensors& in) -> Tensors {
                         const torch::Tensor x = torch::tanh(layer(in[0]));
                         return {x, x * 2, in[0].sum(1).round().to(torch::kInt64), x.sigmoid()};
                       }),
          linear_stage(5,
                       5,
                       0.5,
                       [](auto& layer, const Tensors& in) -> Tensors {
                         // Forwards a tensor that has no gradient.
                         return {torch::tanh(layer(in[0])), in[1]};
                       }),
          linear_stage(5,
                       4,
                       0.9,
                       [](auto& layer, const Tensors& in) -> Tensors {
                         return {layer(in[0] + in[2]) * in[1].unsqueeze(1)};
                       }),
          linear_stage(4, 3, 1.4, [](auto& layer, const Tensors& in) -> Tensors {
            return {layer(torch::sin(in[0])) + in[1].narrow(1, 0, 3) * in[2], in[1].sum(1)};
          })};
}

const PipelineOptions kBranching{
    .skips = {{.from = 0, .output = 1, .to = 2}, {.from = 0, .output = 3, .to = 3}},
    .inputs = {{.input = 1, .stage = 3}}};

Tensors run_branching(const std::vector<Stage>& stages, const Tensors& batch) {
  const Tensors a = stages[0].forward({batch[0]});
  const Tensors b = stages[1].forward({a[0], a[2]});
  const Tensors c = stages[2].forward({b[0], b[1], a[1]});
  return stages[3].forward({c[0], a[3], batch[1]});
}

torch::Tensor loss_of_both(const Tensors& outputs, const Tensors& targets) {
  return loss_of_classes(outputs[0], targets[0]) + torch::mse_loss(outputs[1], targets[1]);
}

Tensors branching_batch(std::int64_t n) {
  return {make_batch(n), torch::linspace(0.5, 2, n).unsqueeze(1)};
}

Tensors branching_targets(std::int64_t n) {
  return {make_targets(n), torch::linspace(-1, 1, n)};
}

Named branching_gradients(std::int64_t n, int n_chunks) {
  const std::vector<Stage> stages = make_branching();
  const Tensors batch = branching_batch(n);
  const Tensors targets = branching_targets(n);
  for (int chunk = 0; chunk < n_chunks; ++chunk) {
    const auto part = [&](const torch::Tensor& tensor) { return tensor.chunk(n_chunks)[chunk]; };
    const Tensors outputs = run_branching(stages, {part(batch[0]), part(batch[1])});
    (loss_of_both(outputs, {part(targets[0]), part(targets[1])}) / n_chunks).backward();
  }
  Named gradients;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (const auto& parameter : stages[stage].module->named_parameters()) {
      gradients["stage" + std::to_string(stage) + "." + parameter.key()] = parameter.value().grad();
    }
  }
  return gradients;
}

int n_stages_of(const PipelineOptions& options, int n_ranks) {
  return pipeline::find_schedule(options.schedule)
      .make({.n_ranks = n_ranks,
             .n_chunks = options.chunks,
             .stages_per_rank = options.stages_per_rank})
      .n_stages();
}

TEST(PipelineModels, SkipConnectionsAndInputsOfLaterStagesWorkInEverySchedule) {
  const std::map<std::int64_t, Named> expected{{8, branching_gradients(8, 4)},
                                               {12, branching_gradients(12, 4)}};
  for (const int world_size : {1, 2, 4}) {
    run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
      for (const std::string& schedule : all_schedules()) {
        for (const auto mode : {nn::CheckpointMode::kNever, nn::CheckpointMode::kAlways}) {
          PipelineOptions options = kBranching;
          options.schedule = schedule;
          options.stages_per_rank = 4 / world_size;
          options.chunks = 4;
          options.checkpoint = mode;
          if (n_stages_of(options, world_size) != 4) {
            continue;  // This schedule has one or two stages per rank.
          }
          Pipeline model(group, make_branching(), options);
          // The sizes change from batch to batch.
          for (const std::int64_t n : {8, 12}) {
            model.zero_grad();
            (void)model.train_step(branching_batch(n), branching_targets(n), loss_of_both);
            ASSERT_EQ(difference(gradients_of(model.named_parameters()), expected.at(n)), "")
                << schedule << " of " << world_size << " ranks, batch of " << n;
          }
          const Tensors outputs = model.forward(branching_batch(3));
          if (!outputs.empty()) {
            const Tensors whole = run_branching(make_branching(), branching_batch(3));
            EXPECT_TRUE(torch::allclose(outputs[0], whole[0]));
            EXPECT_TRUE(torch::allclose(outputs[1], whole[1]));
          }
        }
      }
    });
  }
}

TEST(PipelineModels, AStageIsMadeOnItsOwnRankOnlyAndBatchesAreLookedAtWhereTheyAreNeeded) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<int> made;
    PipelineOptions options = kBranching;
    options.schedule = "interleaved_1f1b";
    options.chunks = 2;
    const parallel::MakeStage make_stage = [&](int stage) {
      made.push_back(stage);
      return make_branching()[static_cast<std::size_t>(stage)];
    };
    Pipeline model(group, make_stage, options);
    EXPECT_EQ(made, group->rank() == 0 ? (std::vector<int>{0, 2}) : (std::vector<int>{1, 3}));
    Tensors batch = branching_batch(4);
    Tensors targets = branching_targets(4);
    batch[group->rank() == 0 ? 1 : 0] = torch::Tensor();
    if (group->rank() == 0) {
      targets.clear();
    }
    (void)model.train_step(batch, targets, loss_of_both);
    EXPECT_EQ(difference(gradients_of(model.named_parameters()), branching_gradients(4, 2)), "");
  });
}

double train_tied(Pipeline& model) {
  const torch::Tensor loss = model.train_step(make_batch(8), make_targets(8), loss_of_classes);
  return loss.item<double>();
}

// Trains in a single process with separate weights of the last layer. Averages the gradients over
// the replicas, then sums the gradients of the first and the last layer.
Named gradients_of_untied(int n_replicas, int n_chunks) {
  torch::nn::Sequential model(torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)),
                              torch::nn::Tanh(),
                              torch::nn::Linear(6, 6),
                              torch::nn::Tanh(),
                              torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)));
  const std::vector<torch::Tensor> parameters = model->parameters();
  const std::vector<torch::Tensor> values = make_tied_chain()->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::NoGradGuard no_grad;
    parameters[i].copy_(values.at(i));
  }
  accumulate_shards(parameters, n_replicas, [&](int replica) {
    (void)run_chunks(model,
                     make_batch(8 * n_replicas).chunk(n_replicas)[replica],
                     make_targets(8 * n_replicas).chunk(n_replicas)[replica],
                     n_chunks);
  });
  Named gradients = gradients_of(model);
  gradients["0.weight"] = gradients["0.weight"] + gradients["4.weight"];
  gradients["4.weight"] = gradients["0.weight"];
  return gradients;
}

// Numbers of ranks of a pipeline, and of replicas.
class TiedWeights : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(TiedWeights, HaveTheSumOfTheirStagesGradientsInEveryScheduleAndMode) {
  const auto [n_ranks, n_replicas] = GetParam();
  const Named expected = gradients_of_untied(n_replicas, 4);
  run_ranks(n_ranks * n_replicas, [&](const std::shared_ptr<ProcessGroup>& world) {
    const Mesh mesh(world, {{"data", n_replicas}, {"pipe", n_ranks}});
    const int replica = mesh.coordinate("data");
    for (const std::string& schedule : all_schedules()) {
      for (const auto mode : {nn::CheckpointMode::kNever,
                              nn::CheckpointMode::kAlways,
                              nn::CheckpointMode::kExceptLast}) {
        PipelineOptions options{.schedule = schedule, .chunks = 4, .checkpoint = mode};
        if (n_replicas > 1) {
          options.data_group = mesh.group("data");
        }
        if (n_stages_of(options, n_ranks) > 5) {
          continue;  // The model has 5 layers.
        }
        Pipeline model(mesh.group("pipe"), make_tied_chain(), options);
        (void)model.train_step(make_batch(8 * n_replicas).chunk(n_replicas)[replica],
                               make_targets(8 * n_replicas).chunk(n_replicas)[replica],
                               loss_of_classes);
        EXPECT_EQ(difference(gradients_of(model.named_parameters()), expected), "")
            << schedule << ", mode " << static_cast<int>(mode);
        const TensorState state = model.state();
        for (const NamedTensor& named : model.named_parameters()) {
          EXPECT_TRUE(state.contains(named.name)) << named.name;
        }
        // The whole model loads the state, also in the older format that has only the first name.
        TensorState of_first = state;
        if (state.contains("0.weight")) {
          of_first.erase("4.weight");
        } else if (state.contains("4.weight")) {
          of_first["0.weight"] = of_first.extract("4.weight").mapped();
        }
        model.load_state(state);
        model.load_state(of_first);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds,
                         TiedWeights,
                         ::testing::Values(std::pair(2, 1), std::pair(4, 1), std::pair(2, 2)));

TEST(PipelineModels, TiedWeightsOfStagesThatAreMadeApartStartAlikeAndStayAlike) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const auto pass = [](auto& layer, const Tensors& in) -> Tensors { return {layer(in[0])}; };
    const std::vector<Stage> stages{linear_stage(6, 6, group->rank(), pass),
                                    linear_stage(6, 6, 7.0 + group->rank(), pass)};
    Pipeline model(group,
                   stages,
                   PipelineOptions{.chunks = 2,
                                   .tied = {{.stage = 0,
                                             .name = "stage0.weight",
                                             .other_stage = 1,
                                             .other_name = "stage1.weight"}}});
    torch::optim::SGD optimizer(model.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      (void)train_tied(model);
      optimizer.step();
      const torch::Tensor own = model.parameters()[0].detach().clone();
      const torch::Tensor other = torch::empty_like(own);
      const Work sent = send_async(*group, own, 1 - group->rank());
      (void)recv(*group, other, 1 - group->rank());
      sent.wait();
      EXPECT_TRUE(torch::equal(own, other)) << step;
    }
  });
}

TEST(PipelineModels, FrozenStagesAndThoseWithoutParametersPassThrough) {
  const auto make = [] {
    torch::nn::Sequential model(torch::nn::Linear(6, 5),
                                torch::nn::Tanh(),
                                torch::nn::Linear(5, 4),
                                torch::nn::Linear(4, 3));
    fill(*model);
    for (auto& parameter : (*model)[0]->parameters()) {
      parameter.set_requires_grad(false);
    }
    return model;
  };
  torch::nn::Sequential whole = make();
  (void)run_chunks(whole, make_batch(8), make_targets(8), 4);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const std::string& schedule : all_schedules()) {
      for (const auto mode : {nn::CheckpointMode::kNever, nn::CheckpointMode::kAlways}) {
        Pipeline model(
            group, make(), PipelineOptions{.schedule = schedule, .chunks = 4, .checkpoint = mode});
        (void)model.train_step(make_batch(8), make_targets(8), loss_of_classes);
        EXPECT_EQ(difference(gradients_of(model.named_parameters()), gradients_of(whole)), "")
            << schedule;
      }
    }
  });
}

// A layer that uses its weight twice, and a layer that does not use its own weight.
struct OddImpl : torch::nn::Module {
  OddImpl()
      : w(register_parameter("w", torch::ones({6}))),
        u(register_parameter("u", torch::ones({6}))) {}

  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x * w) * w; }

  torch::Tensor w;
  torch::Tensor u;
};

TORCH_MODULE(Odd);

TEST(PipelineModels, WeightsThatAreUsedTwiceOrNeverAreAsInOneProcess) {
  const auto make = [] {
    torch::nn::Sequential model(
        torch::nn::Linear(6, 6), Odd(), torch::nn::Linear(6, 6), Odd(), torch::nn::Linear(6, 3));
    fill(*model);
    return model;
  };
  torch::nn::Sequential whole = make();
  (void)run_chunks(whole, make_batch(8), make_targets(8), 4);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const auto* const schedule : {"1f1b", "zb_h1", "v_zb"}) {
      Pipeline model(group, make(), PipelineOptions{.schedule = schedule, .chunks = 4});
      (void)model.train_step(make_batch(8), make_targets(8), loss_of_classes);
      EXPECT_EQ(difference(gradients_of(model.named_parameters()), gradients_of(whole)), "")
          << schedule;
    }
  });
}

TEST(PipelineModels, ClippingIsByTheNormOfAllStages) {
  torch::nn::Sequential whole = make_tied_chain();
  whole->to(torch::kFloat64);
  (void)run_chunks(whole, make_batch(8, torch::kFloat64), make_targets(8), 4);
  std::vector<torch::Tensor> once = whole->parameters();
  once.pop_back();  // Removes the tied weight.
  const double norm = torch::nn::utils::clip_grad_norm_(once, 0.05);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const auto* const schedule : {"1f1b", "v_half"}) {
      torch::nn::Sequential tied = make_tied_chain();
      tied->to(torch::kFloat64);
      Pipeline model(group, tied, PipelineOptions{.schedule = schedule, .chunks = 4});
      (void)model.train_step(make_batch(8, torch::kFloat64), make_targets(8), loss_of_classes);
      EXPECT_NEAR(model.clip_grad_norm(0.05), norm, 1e-9 * norm) << schedule;
      EXPECT_LT(relative_difference(gradients_of(model.named_parameters()), gradients_of(whole)),
                1e-9)
          << schedule;
    }
  });
}

}  // namespace
}  // namespace unisono::testing
