// Features of DistributedDataParallel on simulated devices, compared with the CPU. Rank r has
// device "sim:r".

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/optim/zero_redundancy_optimizer.h"

#include "models.h"
#include "rank_threads.h"
#include "scalars.h"
#include "sim_test.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using test::throws_error;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Group = std::shared_ptr<ProcessGroup>;
using Net = DistributedDataParallel<ConvNet>;

constexpr int kSteps = 5;

class DdpFeaturesDevice : public SimTest {};

// A training, whose parts may be replaced.
struct Training {
  DistributedDataParallelOptions options = {};
  std::function<std::shared_ptr<void>(Net& model, const Group& group)> prepare =
      [](Net& /*model*/, const Group& /*group*/) { return nullptr; };
  std::function<std::unique_ptr<torch::optim::Optimizer>(Net& model, const Group& group)>
      optimizer = [](Net& model, const Group& /*group*/) {
        return std::make_unique<torch::optim::SGD>(model.parameters(),
                                                   torch::optim::SGDOptions(0.05).momentum(0.9));
      };
  std::function<void(Net& model, const std::function<Tensor(int shard)>& loss, int rank)> step =
      [](Net& /*model*/, const auto& loss, int rank) { loss(rank).backward(); };
};

Tensors train(const Group& group, torch::Device device, const Training& training) {
  ConvNet net = make_seeded_net();
  net->to(device);
  Net model(net, group, training.options);
  const std::shared_ptr<void> kept = training.prepare(model, group);
  const std::unique_ptr<torch::optim::Optimizer> optimizer = training.optimizer(model, group);
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    const auto loss = [&](int shard) {
      const Sample host = make_sample(step, shard, 8, torch::kFloat);
      return loss_of(model,
                     Sample{.images = host.images.to(device), .labels = host.labels.to(device)});
    };
    training.step(model, loss, group->rank());
    optimizer->step();
  }
  return model.parameters();
}

void expect_the_bits_of_the_cpu(const std::vector<std::string>& nodes,
                                const Training& training,
                                const std::string& what) {
  run_ranks(nodes, [&](const Group& group) {
    const Tensors here = train(group, torch::kCPU, training);
    expect_same_bits(train(group, sim(group->rank()), training),
                     here,
                     what + ", rank " + std::to_string(group->rank()));
  });
}

void expect_the_bits_of_the_cpu(const Training& training, const std::string& what) {
  expect_the_bits_of_the_cpu({"a", "a"}, training, what);
}

TEST_F(DdpFeaturesDevice, StepsOfOwnOptimizersHaveTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu({.options = {.non_finite_gradients = NonFiniteGradients::kThrow,
                                          .parameter_drift = ParameterDrift::kThrow},
                              .optimizer =
                                  [](Net& model, const Group&) {
                                    return std::make_unique<optim::AdamW>(
                                        model.parameters(), optim::AdamWOptions(0.01));
                                  }},
                             "AdamW");
}

TEST_F(DdpFeaturesDevice, DividedOptimizersHaveTheBitsOfTheCpu) {
  using Divided = optim::ZeroRedundancyOptimizer<torch::optim::Adam>;
  for (const bool overlaps : {false, true}) {
    expect_the_bits_of_the_cpu(
        {.options = {.bucket_cap_mb = 0.001},
         .optimizer =
             [=](Net& model, const Group& group) {
               auto optimizer = std::make_unique<Divided>(
                   group, model.parameters(), torch::optim::AdamOptions(0.01));
               if (overlaps) {
                 optimizer->overlap_with(model);
               }
               return optimizer;
             }},
        overlaps ? "overlapped" : "plain");
  }
}

TEST_F(DdpFeaturesDevice, LogicalRanksHaveTheBitsOfTheCpu) {
  for (const int n_shards : {2, 3, 4, 5}) {
    expect_the_bits_of_the_cpu(
        {.options = {.logical_ranks = n_shards},
         .step =
             [](Net& model, const auto& loss, int /*rank*/) {
               model.for_each_shard([&](int shard) { loss(shard).backward(); });
             }},
        std::to_string(n_shards) + " shards");
  }
}

TEST_F(DdpFeaturesDevice, WeightedSamplesHaveTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu({.options = {.weigh_samples = true},
                              .step =
                                  [](Net& model, const auto& loss, int rank) {
                                    const std::int64_t n_samples = 8 - 3 * rank;
                                    model.run_step(n_samples,
                                                   [&] { loss(rank).mul(n_samples).backward(); });
                                  }},
                             "weighted");
}

TEST_F(DdpFeaturesDevice, UnusedParametersHaveTheBitsOfTheCpu) {
  for (const bool is_used : {false, true}) {
    const auto gradients = [&](const Group& group, torch::Device device) {
      Scalars scalars;
      scalars->to(device);
      Model model(scalars, group, {.find_unused_parameters = true});
      for (int pass = 0; pass < 2; ++pass) {
        model.zero_grad();
        model(Factors{1, is_used || group->rank() == 1 ? 2.0 : 0.0, 0}).backward();
      }
      return gradients_of(model);
    };
    run_ranks(2, [&](const Group& group) {
      EXPECT_EQ(gradients(group, sim(group->rank())), gradients(group, torch::kCPU));
    });
  }
}

TEST_F(DdpFeaturesDevice, CompressingHooksHaveTheBitsOfTheCpu) {
  const auto hooked = [](auto make_state, auto hook) {
    return Training{.prepare = [=](Net& model, const Group& group) -> std::shared_ptr<void> {
      const auto state = make_state(group);
      model.register_comm_hook(state, hook);
      return state;
    }};
  };
  expect_the_bits_of_the_cpu(
      hooked([](const Group& group) { return std::make_shared<TopKState>(group, 0.25); },
             top_k_hook),
      "top k");
  expect_the_bits_of_the_cpu(hooked(
                                 [](const Group& group) {
                                   return std::make_shared<PowerSgdState>(
                                       group, PowerSgdOptions{.start_power_sgd_iter = 2});
                                 },
                                 power_sgd_hook),
                             "PowerSGD");
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{"a", "b"}, std::vector<std::string>{"a", "a", "b"}}) {
    expect_the_bits_of_the_cpu(nodes,
                               hooked(
                                   [](const Group& group) {
                                     return std::make_shared<QuantizeState>(group,
                                                                            QuantizedType::kInt8);
                                   },
                                   quantize_hook),
                               "quantized on " + std::to_string(nodes.size()) + " ranks");
  }
}

// Returns the stderr of `train` on two ranks with scalars on devices.
std::string warnings_of(const DistributedDataParallelOptions& options,
                        const std::function<void(Model& model, int rank)>& train) {
  ::testing::internal::CaptureStderr();
  run_ranks(2, [&](const Group& group) {
    Scalars scalars;
    scalars->to(sim(group->rank()));
    Model model(scalars, group, options);
    train(model, group->rank());
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(DdpFeaturesDevice, NonFiniteGradientsAreNamed) {
  const double infinity = std::numeric_limits<double>::infinity();
  (void)warnings_of(
      {.non_finite_gradients = NonFiniteGradients::kThrow}, [&](Model& model, int rank) {
        model(Factors{1, 2, 3}).backward();
        model.zero_grad();
        EXPECT_THAT([&] { model(Factors{1, rank == 1 ? infinity : 2, 3}).backward(); },
                    throws_error(ErrorCode::kInvalidArgument,
                                 "gradients of pass 2 have an infinity or NaN: rank 1 in 'w1'"));
        EXPECT_FALSE(model.parameters()[0].grad().defined());
        model(Factors{1, 2, 3}).backward();
        EXPECT_EQ(gradients_of(model), values({1, 2, 3}));
      });
}

TEST_F(DdpFeaturesDevice, ParametersThatDifferAreNamed) {
  const std::string text = warnings_of({}, [](Model& model, int rank) {
    for (int pass = 0; pass < 3; ++pass) {
      model.zero_grad();
      model(Factors{1, 1, 1}).backward();
      if (rank == 1 && pass == 0) {
        const torch::NoGradGuard no_grad;
        model.module()->w[1].add_(0x1p-20);
      }
    }
  });
  EXPECT_THAT(text, HasSubstr("parameters are no longer the same on all ranks"));
  EXPECT_THAT(text, HasSubstr("'w1'"));
}

TEST_F(DdpFeaturesDevice, MistakesOfSteps) {
  const auto local_steps = [](bool is_averaged) {
    return warnings_of({.parameter_drift = ParameterDrift::kIgnore},
                       [=](Model& model, int /*rank*/) {
                         torch::optim::SGD optimizer(model.parameters(), 0.1);
                         for (int step = 0; step < 5; ++step) {
                           optimizer.zero_grad();
                           {
                             const auto local = model.no_sync();
                             model(Factors{1, 1, 1}).backward();
                           }
                           if (is_averaged) {
                             model(Factors{1, 1, 1}).backward();
                           }
                           optimizer.step();
                         }
                       });
  };
  EXPECT_THAT(local_steps(false), HasSubstr("the ranks' models go apart"));
  EXPECT_THAT(local_steps(true), Not(HasSubstr("rank 0")));
  const auto kept_gradients = [](bool is_reset) {
    return warnings_of({}, [=](Model& model, int /*rank*/) {
      torch::optim::SGD optimizer(model.parameters(), 0.1);
      for (int step = 0; step < 6; ++step) {
        model(Factors{1, 1, 1}).backward();
        optimizer.step();
        if (is_reset) {
          optimizer.zero_grad();
        }
      }
    });
  };
  EXPECT_THAT(kept_gradients(false), HasSubstr("the gradients were not set to zero"));
  EXPECT_THAT(kept_gradients(true), Not(HasSubstr("rank 0")));
}

}  // namespace
}  // namespace unisono::testing
