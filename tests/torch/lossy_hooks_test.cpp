// Lossy hooks: the exact transferred data, and the convergence of training.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/hash.h"
#include "unisono/torch/tensor/tensor.h"
#include "unisono/transport/rank_table.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

// A parameter with the input as gradient.
struct SlopeImpl : torch::nn::Module {
  explicit SlopeImpl(at::IntArrayRef sizes) : w(register_parameter("w", torch::zeros(sizes))) {}

  torch::Tensor forward(const torch::Tensor& x) { return (w * x).sum(); }

  torch::Tensor w;
};

TORCH_MODULE(Slope);

using SlopeModel = DistributedDataParallel<Slope>;
using Register = std::function<void(SlopeModel&, const Group&)>;

const Register kTopK = [](SlopeModel& model, const Group& group) {
  model.register_comm_hook(std::make_shared<TopKState>(group, 0.1), top_k_hook);
};

Register quantize(QuantizedType type) {
  return [type](SlopeModel& model, const Group& group) {
    model.register_comm_hook(std::make_shared<QuantizeState>(group, type), quantize_hook);
  };
}

Register power_sgd(std::int64_t rank) {
  return [rank](SlopeModel& model, const Group& group) {
    const PowerSgdOptions options{.matrix_approximation_rank = rank, .start_power_sgd_iter = 2};
    model.register_comm_hook(std::make_shared<PowerSgdState>(group, options), power_sgd_hook);
  };
}

at::Tensor gradient_of(SlopeModel& model, const at::Tensor& input) {
  model.zero_grad();
  model(input).backward();
  return model.parameters()[0].grad().clone();
}

// Not a multiple of a block. The ranks' chunks differ in size, and the last of five chunks is
// empty.
constexpr std::int64_t kElems = 500;

at::Tensor slope(int rank) {
  return (torch::arange(1, kElems + 1, torch::kFloat) * (0.3 + rank)).sin();
}

at::Tensor mean_slope(int n_ranks) {
  std::vector<at::Tensor> slopes;
  for (int rank = 0; rank < n_ranks; ++rank) {
    slopes.push_back(slope(rank));
  }
  return canonical_mean(slopes);
}

TEST(LossyHooks, TopKSendsTheLargestGradientsAndTheRestLater) {
  run_ranks(2, [](const Group& group) {
    SlopeModel model(Slope(10), group);
    kTopK(model, group);
    at::Tensor input = torch::arange(1, 11, torch::kFloat) * 0.1;
    input[group->rank()] = -4;
    const at::Tensor first = gradient_of(model, input);
    const auto expected_first = torch::zeros({10});
    expected_first[0] = expected_first[1] = -2;
    EXPECT_TRUE(torch::equal(first, expected_first)) << first;
    // The second pass has no new gradients: the hook sends the residual, the largest elements
    // first.
    const at::Tensor second = gradient_of(model, torch::zeros({10}));
    EXPECT_EQ(second[9].item<float>(), 1);
    EXPECT_EQ(second.count_nonzero().item<std::int64_t>(), 1);
  });
}

TEST(LossyHooks, TopKOfAllGradientsIsTheMean) {
  run_ranks(2, [](const Group& group) {
    SlopeModel model(Slope(kElems), group);
    model.register_comm_hook(std::make_shared<TopKState>(group, 1), top_k_hook);
    EXPECT_TRUE(torch::equal(gradient_of(model, slope(group->rank())), mean_slope(2)));
  });
}

// Layouts in which nodes have one rank, several ranks, or both, and in which ranks of a node are
// not adjacent.
const std::vector<std::string> kSharedNode{"a", "a", "b"};
const std::vector<std::vector<std::string>> kNodes{
    {"a", "b"}, kSharedNode, {"a", "a", "b", "b"}, {"a", "b", "c", "a", "b"}};

TEST(LossyHooks, QuantizedMeansAreCloseAndEqualOnAllRanks) {
  for (const std::vector<std::string>& nodes : kNodes) {
    run_ranks(nodes, [&](const Group& group) {
      for (const auto& [type, bound] : {std::pair(QuantizedType::kBFloat16, 2.1 / 256),
                                        std::pair(QuantizedType::kInt8, 2.1 / 254),
                                        std::pair(QuantizedType::kFloat8, 2.2 / 16)}) {
        SlopeModel model(Slope(kElems), group);
        quantize(type)(model, group);
        const at::Tensor gradient = gradient_of(model, slope(group->rank()));
        const at::Tensor error = (gradient - mean_slope(group->world_size())).abs().max();
        EXPECT_LE(error.item<double>(), bound);
        EXPECT_GT(error.item<double>(), bound / 40);
        check_consistent(*group, {{.name = "gradient", .tensor = gradient}}, "test");
      }
    });
  }
}

TEST(LossyHooks, QuantizingLosesNothingInsideANode) {
  run_ranks(3, [](const Group& group) {
    SlopeModel model(Slope(kElems), group);
    quantize(QuantizedType::kFloat8)(model, group);
    EXPECT_TRUE(torch::equal(gradient_of(model, slope(group->rank())), mean_slope(3)));
  });
}

// Returns the number of bytes that all ranks have sent to other nodes.
std::int64_t bytes_between_nodes(ProcessGroup& group) {
  std::int64_t n_bytes = 0;
  const std::vector<RankTraffic> traffic = group.traffic();
  for (std::size_t rank = 0; rank < traffic.size(); ++rank) {
    if (group.roster().members[rank].node != group.roster().self().node) {
      n_bytes += traffic[rank].sent_bytes;
    }
  }
  const at::Tensor sum = torch::tensor({n_bytes});
  all_reduce(group, sum);
  return sum.item<std::int64_t>();
}

// Without a hook each node sends the whole size of the gradients.
TEST(LossyHooks, QuantizedGradientsTakeAHalfOrAQuarterOfTheBytesBetweenNodes) {
  constexpr std::int64_t kManyElems = 64 * 1024;
  constexpr std::int64_t kPlainBytes = 2 * kManyElems * 4;
  for (const std::vector<std::string>& nodes : {kNodes[0], kNodes[1], kNodes[2]}) {
    run_ranks(nodes, [&](const Group& group) {
      for (const auto& [type, share] : {std::pair(QuantizedType::kBFloat16, 0.5),
                                        std::pair(QuantizedType::kInt8, 0.2579),
                                        std::pair(QuantizedType::kFloat8, 0.2579)}) {
        SlopeModel model(Slope(kManyElems), group);
        quantize(type)(model, group);
        const std::int64_t before = bytes_between_nodes(*group);
        (void)gradient_of(model, torch::ones({kManyElems}));
        const std::int64_t n_bytes = bytes_between_nodes(*group) - before;
        // The allowance covers the flags at the end of a pass and the sum of the counters.
        EXPECT_LE(static_cast<double>(n_bytes), share * kPlainBytes + 512);
        EXPECT_GE(static_cast<double>(n_bytes), 0.9 * share * kPlainBytes);
      }
    });
  }
}

// The mean over many passes does not contain the errors of single passes.
TEST(LossyHooks, WhatOnePassLosesTheNextOnesSend) {
  // With the top 10%, an element waits for about 10 passes.
  for (const auto& [add_hook, bound] : {std::pair(kTopK, 0.06),
                                        std::pair(quantize(QuantizedType::kBFloat16), 3e-4),
                                        std::pair(quantize(QuantizedType::kInt8), 3e-4),
                                        std::pair(quantize(QuantizedType::kFloat8), 2e-3)}) {
    run_ranks(kSharedNode, [&](const Group& group) {
      SlopeModel model(Slope(kElems), group);
      add_hook(model, group);
      const at::Tensor sum = torch::zeros({kElems}, torch::kDouble);
      constexpr int kPasses = 200;
      for (int pass = 0; pass < kPasses; ++pass) {
        sum.add_(gradient_of(model, slope(group->rank())));
      }
      const at::Tensor error = (sum / kPasses - mean_slope(3)).abs().max();
      EXPECT_LE(error.item<double>(), bound);
    });
  }
}

TEST(LossyHooks, AnOverflowIsSeenByAllRanksAndForgotten) {
  for (const Register& add_hook : {kTopK,
                                   quantize(QuantizedType::kBFloat16),
                                   quantize(QuantizedType::kInt8),
                                   quantize(QuantizedType::kFloat8),
                                   power_sgd(1),
                                   power_sgd(3)}) {
    run_ranks(kSharedNode, [&](const Group& group) {
      SlopeModel model(Slope(std::vector<std::int64_t>{20, kElems / 20}), group);
      add_hook(model, group);
      const at::Tensor input = slope(group->rank()).view({20, -1});
      for (int pass = 0; pass < 3; ++pass) {
        EXPECT_TRUE(gradient_of(model, input).isfinite().all().item<bool>());
      }
      at::Tensor infinite = input.clone();
      if (group->rank() == 1) {
        // The element is in the last block, which extends beyond the gradient.
        infinite.view(-1)[450] = std::numeric_limits<float>::infinity();
      }
      EXPECT_FALSE(gradient_of(model, infinite).isfinite().all().item<bool>());
      for (int pass = 0; pass < 2; ++pass) {
        EXPECT_TRUE(gradient_of(model, input).isfinite().all().item<bool>());
      }
    });
  }
}

TEST(LossyHooks, APassThatARankGivesUpLeavesNothingForTheNext) {
  for (const Register& add_hook :
       {kTopK, quantize(QuantizedType::kInt8), quantize(QuantizedType::kFloat8)}) {
    run_ranks(kSharedNode, [&](const Group& group) {
      SlopeModel model(Slope(kElems), group);
      add_hook(model, group);
      const at::Tensor w = model.parameters()[0];
      if (group->rank() == 1) {
        const unsigned trap = w.register_hook(
            [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no luck"); });
        EXPECT_THROW(gradient_of(model, slope(1)), std::runtime_error);
        w.remove_hook(trap);
      } else {
        expect_error(ErrorCode::kMismatch, HasSubstr("another rank's backward"), [&] {
          gradient_of(model, slope(0));
        });
      }
      EXPECT_EQ(gradient_of(model, torch::zeros({kElems})).count_nonzero().item<std::int64_t>(), 0);
    });
  }
}

using Net = DistributedDataParallel<ConvNet>;

double loss_after_training(Net& net, const Group& group) {
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    loss_of(net, make_sample(step % 2, group->rank(), 8, torch::kFloat)).backward();
    optimizer.step();
  }
  const torch::NoGradGuard no_grad;
  return loss_of(net, make_sample(0, group->rank(), 8, torch::kFloat)).item<double>();
}

TEST(LossyHooks, AModelLearnsItsSamplesWithEachOfThem) {
  const std::vector<std::function<void(Net&, const Group&)>> hooks{
      [](Net& net, const Group& group) {
        net.register_comm_hook(std::make_shared<TopKState>(group, 0.05), top_k_hook);
      },
      [](Net& net, const Group& group) {
        net.register_comm_hook(std::make_shared<QuantizeState>(group, QuantizedType::kInt8),
                               quantize_hook);
      },
      [](Net& net, const Group& group) {
        net.register_comm_hook(std::make_shared<QuantizeState>(group, QuantizedType::kFloat8),
                               quantize_hook);
      },
      [](Net& net, const Group& group) {
        net.register_comm_hook(
            std::make_shared<PowerSgdState>(
                group, PowerSgdOptions{.matrix_approximation_rank = 2, .start_power_sgd_iter = 2}),
            power_sgd_hook);
      }};
  for (std::size_t i = 0; i < hooks.size(); ++i) {
    run_ranks(kSharedNode, [&](const Group& group) {
      Net net(make_seeded_net(), group, {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001});
      hooks[i](net, group);
      EXPECT_LT(loss_after_training(net, group), 0.5) << "hook " << i << "; it starts at 2.3";
      net.check_consistent();
    });
  }
}

TEST(LossyHooks, LocalStepsLeaveRanksApartUntilTheirAverage) {
  run_ranks(2, [](const Group& group) {
    SlopeModel model(Slope(4), group);
    model.register_comm_hook(std::make_shared<PostLocalSgdState>(
                                 PostLocalSgdState{.group = group, .start_local_sgd_iter = 1}),
                             post_local_sgd_hook);
    const float rank = static_cast<float>(group->rank());
    EXPECT_TRUE(gradient_of(model, torch::full({4}, rank)).eq(0.5).all().item<bool>());
    EXPECT_TRUE(gradient_of(model, torch::full({4}, rank)).eq(rank).all().item<bool>());
    PeriodicModelAverager averager(group, 2);
    const torch::NoGradGuard no_grad;
    model.parameters()[0].fill_(rank);
    averager.average_parameters(model.parameters());
    EXPECT_TRUE(model.parameters()[0].eq(0.5).all().item<bool>());
    model.parameters()[0].fill_(rank);
    averager.average_parameters(model.parameters());
    EXPECT_TRUE(model.parameters()[0].eq(rank).all().item<bool>()) << "every second step only";
  });
}

TEST(LossyHooks, OptionsThatCantBeUsedAreNamed) {
  run_ranks(1, [](const Group& group) {
    const auto refuses = [](const std::string& message, const std::function<void()>& body) {
      expect_error(ErrorCode::kInvalidArgument, HasSubstr(message), body);
    };
    refuses("ratio is 0", [&] { TopKState(group, 0); });
    refuses("ratio is 1.5", [&] { TopKState(group, 1.5); });
    refuses("matrix_approximation_rank is 0",
            [&] { PowerSgdState(group, {.matrix_approximation_rank = 0}); });
    refuses("start_power_sgd_iter is 1; it must be 2 or greater",
            [&] { PowerSgdState(group, {.start_power_sgd_iter = 1}); });
    refuses("null", [&] { QuantizeState(nullptr, QuantizedType::kInt8); });
    refuses("period is 0", [&] { PeriodicModelAverager(group, 0); });
  });
}

}  // namespace
}  // namespace unisono::testing
