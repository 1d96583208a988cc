// An error on one rank gives one message on all ranks, and no rank waits for a timeout.

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "pipelines.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Stage;
using parallel::Tensors;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Body = std::function<void(const std::shared_ptr<ProcessGroup>&)>;

// Returns each rank's error; "" after success. All errors must come long before any timeout.
std::vector<std::string> errors_of(int world_size, const Body& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(world_size));
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
    try {
      body(group);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  return errors;
}

// Returns a stage that calls `act` with a number that counts its calls.
Stage stage_that(std::function<torch::Tensor(const torch::Tensor&, int)> act) {
  torch::nn::Linear layer(6, 6);
  return {
      .module = layer.ptr(),
      .forward = [layer, act = std::move(act), n_calls = 0](const Tensors& in) mutable -> Tensors {
        return {act(layer(in.at(0)), n_calls++)};
      }};
}

Stage plain_stage() {
  return stage_that([](const torch::Tensor& x, int) { return x; });
}

torch::Tensor step(Pipeline& model, std::int64_t n = 8) {
  return model.train_step(make_batch(n), make_targets(n), loss_of_classes);
}

class FailingBackward : public torch::autograd::Function<FailingBackward> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& x) {
    return x.clone();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*of*/) {
    throw std::runtime_error("no way back");
  }
};

TEST(PipelineFailures, AStageThatThrowsIsNamedOnEveryRank) {
  for (const auto* const schedule : {"fill_drain", "1f1b", "zb_h1"}) {
    for (const int failing : {0, 1, 2}) {
      const std::vector<std::string> errors = errors_of(3, [&](const auto& group) {
        std::vector<Stage> stages{plain_stage(), plain_stage(), plain_stage()};
        stages[static_cast<std::size_t>(failing)] =
            stage_that([](const torch::Tensor& x, int n_calls) {
              if (n_calls == 2) {
                throw std::runtime_error("the milk is sour");
              }
              return x;
            });
        Pipeline model(group, stages, PipelineOptions{.schedule = schedule, .chunks = 4});
        (void)step(model);
      });
      EXPECT_THAT(errors,
                  Each(AllOf(HasSubstr("[rank " + std::to_string(failing) +
                                       "/3] Pipeline: forward of chunk 2 in stage " +
                                       std::to_string(failing)),
                             HasSubstr("the milk is sour"))))
          << schedule;
    }
  }
}

TEST(PipelineFailures, ABackwardThatThrowsIsNamedOnEveryRank) {
  for (const auto* const schedule : {"1f1b", "zb_h1"}) {
    const std::vector<std::string> errors = errors_of(3, [&](const auto& group) {
      std::vector<Stage> stages{plain_stage(), plain_stage(), plain_stage()};
      stages[1] = stage_that([](const torch::Tensor& x, int n_calls) {
        return n_calls == 1 ? FailingBackward::apply(x) : x;
      });
      Pipeline model(group, stages, PipelineOptions{.schedule = schedule, .chunks = 4});
      (void)step(model);
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("of chunk 1 in stage 1"), HasSubstr("no way back"))));
  }
}

TEST(PipelineFailures, ABatchThatChunksDoNotDivideIsNamedOnEveryRank) {
  EXPECT_THAT(errors_of(2,
                        [](const auto& group) {
                          Pipeline model(group, make_chain(), PipelineOptions{.chunks = 3});
                          (void)step(model, 8);
                        }),
              Each(AllOf(HasSubstr("[rank"), HasSubstr("can't be cut into 3 equal chunks"))));
  EXPECT_THAT(errors_of(2,
                        [](const auto& group) {
                          Pipeline model(group, make_chain(), PipelineOptions{.chunks = 2});
                          (void)model.train_step(make_batch(8), make_targets(7), loss_of_classes);
                        }),
              Each(HasSubstr("[rank 1/2] Pipeline: target 0, i64[7], for the loss in stage 1")));
}

TEST(PipelineFailures, AMissingInputIsNamedOnEveryRank) {
  EXPECT_THAT(errors_of(2,
                        [](const auto& group) {
                          Pipeline model(
                              group,
                              make_chain(),
                              PipelineOptions{.chunks = 2, .inputs = {{.input = 1, .stage = 1}}});
                          (void)step(model);
                        }),
              Each(HasSubstr("[rank 1/2] Pipeline: input 1 of the batch is missing")));
}

TEST(PipelineFailures, OtherShapesThanAnnouncedAreNamedOnEveryRank) {
  EXPECT_THAT(errors_of(2,
                        [](const auto& group) {
                          std::vector<Stage> stages{plain_stage(), plain_stage()};
                          stages[0] = stage_that([](const torch::Tensor& x, int n_calls) {
                            return n_calls == 1 ? x.narrow(1, 0, 5) : x;
                          });
                          stages[0].output_sizes = {{-1, 6}};
                          Pipeline model(group, stages, PipelineOptions{.chunks = 4});
                          (void)step(model);
                        }),
              Each(HasSubstr("[rank 0/2] Pipeline: forward of chunk 1 in stage 0: returned "
                             "f32[2, 5] as output 0, but announced [-1, 6]")));
}

TEST(PipelineFailures, ALossThatIsNoNumberIsNamedOnEveryRank) {
  EXPECT_THAT(errors_of(2,
                        [](const auto& group) {
                          Pipeline model(group, make_chain(), PipelineOptions{.chunks = 2});
                          (void)model.train_step(
                              make_batch(8),
                              make_targets(8),
                              [](const torch::Tensor& output, const torch::Tensor& /*target*/) {
                                return output;
                              });
                        }),
              Each(HasSubstr("chunk 0 in stage 1: the loss function returned f32[4, 3]")));
}

// An error at construction, on all ranks or on some, leaves the group usable.
void expect_refused(const std::function<void(const std::shared_ptr<ProcessGroup>&)>& construct,
                    const std::string& problem) {
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    try {
      construct(group);
      ADD_FAILURE() << "no error on rank " << group->rank();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(problem));
    }
    Pipeline model(group, make_chain(), PipelineOptions{.chunks = 2});
    EXPECT_GT(step(model).item<double>(), 0);
  });
}

TEST(PipelineFailures, WhatIsRefusedAtConstructionLeavesTheGroupOpen) {
  const auto with = [](const PipelineOptions& options) {
    return [options](const auto& group) { const Pipeline model(group, make_chain(), options); };
  };
  expect_refused(with({.schedule = "interleaved_1f1b", .stages_per_rank = 7}),
                 "the model has 12 layers, and the schedule 14 stages");
  expect_refused(with({.schedule = "2f2b"}), "no schedule \"2f2b\"; there are fill_drain");
  expect_refused(with({.chunks = 0}), "0 chunks");
  expect_refused(with({.layers = {5, 6}}), "`layers` has 11 layers in 2 stages");
  expect_refused(with({.layer_costs = {1, 2}}), "`layer_costs` has 2 costs");
  expect_refused(with({.skips = {{.from = 1, .output = 0, .to = 0}}}), "it has to go forward");
  expect_refused(
      with({.skips = {{.from = 0, .output = 1, .to = 1}, {.from = 0, .output = 1, .to = 1}}}),
      "output 1 of stage 0 has two skip connections");
  expect_refused(with({.inputs = {{.input = 0, .stage = 2}}}), "is to go to stage 2 of 2");
  expect_refused(with({.table = pipeline::parse_csv("0F0,0B0\n1F0,1B0\n2F0,2B0\n", "table")}),
                 "the schedule's table is one of 3 ranks, but the group has 2");
  expect_refused(
      with(
          {.tied = {{.stage = 1, .name = "6.weight", .other_stage = 1, .other_name = "8.weight"}}}),
      "that must be a later one of 2");
  expect_refused(
      with(
          {.tied = {{.stage = 0, .name = "0.weight", .other_stage = 1, .other_name = "8.weight"}}}),
      "parameter '8.weight' of stage 1 is f32[8, 8], but is tied to '0.weight' of stage 0, which "
      "is f32[8, 6]");
  expect_refused(
      with({.tied =
                {{.stage = 0, .name = "0.weight", .other_stage = 1, .other_name = "nine.weight"}}}),
      "no parameter 'nine.weight'");
  expect_refused(
      [](const auto& group) {
        const Pipeline model(group,
                             make_chain(),
                             PipelineOptions{.schedule = group->rank() == 0 ? "1f1b" : "zb_h1"});
      },
      "option schedule is 1f1b on rank 0 and zb_h1 on rank 1");
  expect_refused(
      [](const auto& group) {
        const parallel::MakeStage make_stage = [](int stage) -> Stage {
          if (stage == 1) {
            throw std::runtime_error("no room for it");
          }
          return plain_stage();
        };
        const Pipeline model(group, make_stage, PipelineOptions{});
      },
      "no room for it");
  expect_refused(
      [](const auto& group) {
        const Pipeline model(group, std::vector<Stage>(3, plain_stage()), PipelineOptions{});
      },
      "there are 3 stages, but the schedule has 2");
  expect_refused(
      [](const auto& group) {
        const Pipeline model(group, std::vector<Stage>{plain_stage(), {}}, PipelineOptions{});
      },
      "stage 1 has no forward");
}

// Changes two stages so that a step fails.
struct Mistake {
  std::function<void(std::vector<Stage>& stages, PipelineOptions& options)> make;
  std::string message;
};

TEST(PipelineFailures, WhatAStageDoesWrongIsNamedOnEveryRank) {
  const std::vector<Mistake> mistakes{
      {[](auto& /*stages*/, auto& options) { options.skips = {{.from = 0, .output = 3, .to = 1}}; },
       "[rank 0/2] Pipeline: forward of chunk 0 in stage 0: returned 1 tensors, but output 3 is to "
       "skip to stage 1"},
      {[](auto& stages, auto& /*options*/) {
         stages[1] = stage_that([](const torch::Tensor&, int) { return torch::Tensor(); });
       },
       "[rank 1/2] Pipeline: forward of chunk 0 in stage 1: returned an undefined tensor"},
      {[](auto& stages, auto& /*options*/) { stages[0].output_sizes = {{-1, 6}, {-1}}; },
       "[rank 0/2] Pipeline: forward of chunk 0 in stage 0: returned 1 tensors, but announced 2"},
      {[](auto& stages, auto& options) {
         options.checkpoint = nn::CheckpointMode::kAlways;
         // The first chunk does not modify its input, so the inputs of the other chunks are not
         // copied.
         stages[1].forward = [n_calls = 0](const Tensors& in) mutable -> Tensors {
           return {n_calls++ == 0 ? in[0] * 2 : in[0].mul_(2)};
         };
       },
       "of chunk 1 in stage 1: its input 0, f32[2, 6], was changed in place, so it can't be "
       "computed again"},
      {[](auto& stages, auto& options) {
         options.checkpoint = nn::CheckpointMode::kAlways;
         stages[0] = stage_that([](const torch::Tensor& x, int n_calls) {
           return n_calls < 4 ? x : x.narrow(1, 0, 5);
         });
       },
       "[rank 0/2] Pipeline: backward of chunk 0 in stage 0: the gradient of its output 0, "
       "f32[2, 5], is f32[2, 6]"}};
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(errors_of(2,
                          [&](const auto& group) {
                            std::vector<Stage> stages{plain_stage(), plain_stage()};
                            PipelineOptions options{.schedule = "fill_drain", .chunks = 4};
                            mistake.make(stages, options);
                            Pipeline model(group, stages, options);
                            (void)step(model);
                          }),
                Each(HasSubstr(mistake.message)));
  }
}

TEST(PipelineFailures, ALayerOfASequentialThatGetsTwoTensorsIsNamedOnEveryRank) {
  EXPECT_THAT(
      errors_of(2,
                [](const auto& group) {
                  Pipeline model(
                      group, make_chain(), PipelineOptions{.inputs = {{.input = 1, .stage = 1}}});
                  (void)model.train_step({make_batch(8), make_batch(8)},
                                         {make_targets(8)},
                                         [](const Tensors& outputs, const Tensors& targets) {
                                           return loss_of_classes(outputs[0], targets[0]);
                                         });
                }),
      Each(HasSubstr("[rank 1/2] Pipeline: forward of chunk 0 in stage 1: a layer of a "
                     "Sequential takes one tensor (the first one up to three), and gets "
                     "2")));
}

TEST(PipelineFailures, SparseGradientsOfReplicasAreNamedOnEveryRank) {
  EXPECT_THAT(
      errors_of(2,
                [](const auto& world) {
                  const Mesh mesh(world, {{"data", 2}, {"pipe", 1}});
                  torch::nn::Embedding layer(torch::nn::EmbeddingOptions(4, 3).sparse(true));
                  const Stage stage{.module = layer.ptr(),
                                    .forward = [layer](const Tensors& in) mutable -> Tensors {
                                      return {layer(in[0])};
                                    }};
                  Pipeline model(mesh.group("pipe"),
                                 std::vector<Stage>{stage},
                                 PipelineOptions{.data_group = mesh.group("data")});
                  (void)model.train_step(make_targets(8), make_targets(8), loss_of_classes);
                }),
      Each(HasSubstr("stage 0 has a sparse gradient, which replicas can't average")));
}

TEST(PipelineFailures, UnequalReplicasAreNamedOnEveryRank) {
  EXPECT_THAT(
      errors_of(4,
                [](const auto& world) {
                  const Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
                  torch::nn::Sequential model(
                      torch::nn::Linear(6, 6),
                      torch::nn::Linear(torch::nn::LinearOptions(6, 3).bias(world->rank() != 3)));
                  const Pipeline pipeline(
                      mesh.group("pipe"), model, PipelineOptions{.data_group = mesh.group("data")});
                }),
      Each(AllOf(HasSubstr("replicas differ"), HasSubstr("1.bias"))));
}

TEST(PipelineFailures, AStageThatThrowsInOneReplicaIsNamedInAll) {
  EXPECT_THAT(errors_of(4,
                        [](const auto& world) {
                          const Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
                          const bool fails = mesh.coordinate("data") == 1;
                          std::vector<Stage> stages{plain_stage(), plain_stage()};
                          stages[1] = stage_that([fails](const torch::Tensor& x, int n_calls) {
                            if (fails && n_calls == 1) {
                              throw std::runtime_error("the milk is sour");
                            }
                            return x;
                          });
                          Pipeline model(
                              mesh.group("pipe"),
                              stages,
                              PipelineOptions{.chunks = 4, .data_group = mesh.group("data")});
                          (void)step(model);
                        }),
              Each(AllOf(HasSubstr("forward of chunk 1 in stage 1: the milk is sour"),
                         HasSubstr("in replica 1"))));
}

}  // namespace
}  // namespace unisono::testing
