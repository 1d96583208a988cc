// Optimizers that divide the state among ranks compute the same bits as whole optimizers.
#include "unisono/torch/optim/zero_redundancy_optimizer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/save.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/optim/optimizers.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"
#include "scalars.h"
#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using optim::divide_parameters;
using optim::ZeroRedundancyOptimizer;
using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Group = std::shared_ptr<ProcessGroup>;
using Net = DistributedDataParallel<ConvNet>;

void train_step(Net& net, torch::optim::Optimizer& optimizer, int rank, int step) {
  optimizer.zero_grad();
  loss_of(net, make_sample(step, rank, 4, torch::kFloat)).backward();
  optimizer.step();
}

TEST(DivideParameters, LargeOnesFirstToWhomHasLeast) {
  const std::vector<std::int64_t> n_bytes{10, 50, 20, 30};
  EXPECT_THAT(divide_parameters(n_bytes, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(divide_parameters(n_bytes, 1), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(divide_parameters(n_bytes, 6), ElementsAre(3, 0, 2, 1));
}

// Uses a rate that changes between steps and parameter groups with different rates.
template <class Inner, class Options>
void expect_bits_of_a_whole_one(const Options& options) {
  for (const int world_size : {1, 2, 3}) {
    run_ranks(world_size, [&](const Group& group) {
      Net net(make_seeded_net(), group);
      Net reference(make_seeded_net(), group);
      const auto groups_of = [&](const Net& model) {
        std::vector<at::Tensor> rest = model.parameters();
        const std::vector<at::Tensor> first{rest.back()};
        rest.pop_back();
        auto slow = std::make_unique<Options>(options);
        slow->set_lr(0.001);
        return std::vector<torch::optim::OptimizerParamGroup>{
            torch::optim::OptimizerParamGroup(first, std::move(slow)),
            torch::optim::OptimizerParamGroup(rest)};
      };
      ZeroRedundancyOptimizer<Inner> divided(group, groups_of(net), options);
      Inner whole(groups_of(reference), options);
      for (int step = 0; step < 4; ++step) {
        for (torch::optim::Optimizer* const optimizer :
             {static_cast<torch::optim::Optimizer*>(&divided),
              static_cast<torch::optim::Optimizer*>(&whole)}) {
          optimizer->param_groups()[1].options().set_lr(0.01 * (step + 1));
        }
        train_step(net, divided, group->rank(), step);
        train_step(reference, whole, group->rank(), step);
      }
      EXPECT_TRUE(is_bit_equal(net.parameters(), reference.parameters()));
    });
  }
}

TEST(ZeroRedundancyOptimizer, HasTheBitsOfAWholeOptimizer) {
  using namespace torch::optim;
  expect_bits_of_a_whole_one<SGD>(SGDOptions(0.1).momentum(0.9));
  expect_bits_of_a_whole_one<Adam>(AdamOptions(0.01).amsgrad(true));
  expect_bits_of_a_whole_one<AdamW>(AdamWOptions(0.01));
  expect_bits_of_a_whole_one<Adagrad>(AdagradOptions(0.01));
  expect_bits_of_a_whole_one<RMSprop>(RMSpropOptions(0.01).momentum(0.5));
  expect_bits_of_a_whole_one<unisono::optim::Adadelta>(unisono::optim::AdadeltaOptions(0.5));
  expect_bits_of_a_whole_one<unisono::optim::AdamW>(unisono::optim::AdamWOptions(0.01));
  expect_bits_of_a_whole_one<unisono::optim::Lamb>(unisono::optim::LambOptions(0.01));
  expect_bits_of_a_whole_one<unisono::optim::Lars>(unisono::optim::LarsOptions(0.01));
}

std::size_t bytes_of(const TensorState& state) {
  std::size_t n_bytes = 0;
  for (const auto& [name, tensor] : state) {
    n_bytes += tensor.nbytes();
  }
  return n_bytes;
}

TEST(ZeroRedundancyOptimizer, EachRankHasItsPartOfTheState) {
  std::vector<std::size_t> n_bytes(2);
  std::size_t whole = 0;
  run_ranks(2, [&](const Group& group) {
    Net net(make_seeded_net(), group);
    ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
        group, net.parameters(), torch::optim::AdamOptions(0.01));
    torch::optim::Adam plain(net.parameters(), torch::optim::AdamOptions(0.01));
    train_step(net, optimizer, group->rank(), 0);
    plain.step();
    n_bytes[static_cast<std::size_t>(group->rank())] = bytes_of(optimizer.own_state(*net.module()));
    if (group->rank() == 0) {
      whole = bytes_of(state_below(optimizer_state(plain, *net.module()), "state."));
    }
  });
  EXPECT_EQ(n_bytes[0] + n_bytes[1], whole);
  // The division is as even as whole parameters allow: the largest has 1600 of 1826 elements.
  EXPECT_GT(n_bytes[1], 0U);
}

TEST(ZeroRedundancyOptimizer, RanksOfEqualLayersHaveEqualPartsOfTheState) {
  constexpr std::size_t kBytes = 8 * (32 * 32 + 32) * 2 * sizeof(float);  // Adam's two moments
  for (const int world_size : {2, 4, 8}) {
    run_ranks(world_size, [&](const Group& group) {
      torch::nn::Sequential net;
      for (int layer = 0; layer < 8; ++layer) {
        net->push_back(torch::nn::Linear(32, 32));
      }
      ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
          group, net->parameters(), torch::optim::AdamOptions(0.01));
      net->forward(torch::ones({1, 32})).sum().backward();
      optimizer.step();
      const double share = static_cast<double>(kBytes) / world_size;
      const auto own = static_cast<double>(bytes_of(optimizer.own_state(*net)));
      EXPECT_NEAR(own, share, 0.05 * share) << world_size;
    });
  }
}

TEST(ZeroRedundancyOptimizer, ItsStateGoesOnOnAnotherNumberOfRanks) {
  const test::TemporaryFolder folder;
  const auto options = torch::optim::AdamOptions(0.01);
  std::vector<at::Tensor> expected;
  run_ranks(2, [&](const Group& group) {
    Net net(make_seeded_net(), group);
    ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(group, net.parameters(), options);
    train_step(net, optimizer, 0, 0);
    TensorState common;
    add_state(common, "model.", module_state(*net.module()));
    add_state(common, "optimizer.", optimizer.common_state(*net.module()));
    TensorState own;
    add_state(own, "optimizer.", optimizer.own_state(*net.module()));
    const StateParts state = parts_to_save(*group, common, own);
    checkpoint::save_checkpoint(*group, folder.path(), 1, state.parts, {}, state.common);
    train_step(net, optimizer, 0, 1);
    if (group->rank() == 0) {
      expected = clone_all(net.parameters());
    }
  });
  run_ranks(3, [&](const Group& group) {
    Net net(make_seeded_net(), group);
    ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
        group, net.parameters(), torch::optim::AdamOptions(0.5));
    const TensorState state = load_state(*group, folder.path());
    load_module_state(*net.module(), state_below(state, "model."));
    optimizer.load_state(*net.module(), state_below(state, "optimizer."));
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.01);
    train_step(net, optimizer, 0, 1);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(net.parameters()[i], expected[i], 1e-5, 1e-7));
    }
  });
}

// Uses small buckets, so that a step has several parts, and a rate that changes between steps.
template <class Inner, class Options>
void expect_bits_of_a_plain_step(const Options& options) {
  for (const int world_size : {1, 2, 3}) {
    run_ranks(world_size, [&](const Group& group) {
      Net net(make_seeded_net(), group, {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001});
      Net reference(make_seeded_net(), group);
      ZeroRedundancyOptimizer<Inner> divided(group, net.parameters(), options);
      divided.overlap_with(net);
      Inner whole(reference.parameters(), options);
      for (int step = 0; step < 4; ++step) {
        divided.param_groups()[0].options().set_lr(0.01 * (step + 1));
        whole.param_groups()[0].options().set_lr(0.01 * (step + 1));
        {
          const auto guard = net.no_sync();
          loss_of(net, make_sample(9, group->rank(), 2, torch::kFloat)).backward();
        }
        {
          const auto guard = reference.no_sync();
          loss_of(reference, make_sample(9, group->rank(), 2, torch::kFloat)).backward();
        }
        loss_of(net, make_sample(step, group->rank(), 4, torch::kFloat)).backward();
        loss_of(reference, make_sample(step, group->rank(), 4, torch::kFloat)).backward();
        divided.step();
        whole.step();
        net.zero_grad();
        reference.zero_grad();
      }
      EXPECT_GE(net.n_buckets(), 2U);
      EXPECT_TRUE(is_bit_equal(net.parameters(), reference.parameters())) << world_size;
    });
  }
}

TEST(OverlappedZeroRedundancyOptimizer, HasTheBitsOfAWholeOptimizer) {
  using namespace torch::optim;
  expect_bits_of_a_plain_step<SGD>(SGDOptions(0.1).momentum(0.9));
  expect_bits_of_a_plain_step<Adam>(AdamOptions(0.01).amsgrad(true));
  expect_bits_of_a_plain_step<unisono::optim::AdamW>(unisono::optim::AdamWOptions(0.01));
}

// The first layer's gradient comes last. By then the head's owner has updated the head's bucket.
TEST(OverlappedZeroRedundancyOptimizer, StepsWhileBackwardComputes) {
  std::array<bool, 2> is_stepped{};
  run_ranks(2, [&](const Group& group) {
    Net net(make_seeded_net(), group, {.bucket_cap_mb = 1e-6, .first_bucket_cap_mb = 1e-6});
    ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(
        group, net.parameters(), torch::optim::SGDOptions(0.1));
    optimizer.overlap_with(net);
    const std::vector<at::Tensor> before = clone_all(net.parameters());
    const at::Tensor head = net.module()->head->bias;
    const at::Tensor head_before = head.detach().clone();
    net.module()->conv->weight.register_hook([&](const at::Tensor& gradient) {
      is_stepped[static_cast<std::size_t>(group->rank())] = !torch::equal(head, head_before);
      return gradient;
    });
    loss_of(net, make_sample(0, group->rank(), 4, torch::kFloat)).backward();
    EXPECT_FALSE(is_bit_equal(net.parameters(), before)) << "before step()";
    const std::vector<at::Tensor> after = clone_all(net.parameters());
    optimizer.step();
    EXPECT_TRUE(is_bit_equal(net.parameters(), after));
    net.check_consistent();
  });
  EXPECT_TRUE(is_stepped[0] || is_stepped[1]);
}

TEST(OverlappedZeroRedundancyOptimizer, WrongUseIsNamed) {
  run_ranks(2, [&](const Group& group) {
    Net net(make_seeded_net(), group);
    auto optimizer = std::make_unique<ZeroRedundancyOptimizer<torch::optim::SGD>>(
        group, net.parameters(), torch::optim::SGDOptions(0.1));
    optimizer->overlap_with(net);
    const auto backward = [&] {
      loss_of(net, make_sample(0, group->rank(), 4, torch::kFloat)).backward();
    };
    EXPECT_THAT([&] { optimizer->overlap_with(net); },
                throws_error(ErrorCode::kInvalidArgument, "is called after overlap_with()"));
    EXPECT_THAT([&] { optimizer->step(); },
                throws_error(ErrorCode::kInvalidArgument, "there were 0 since the last step()"));
    backward();
    backward();
    EXPECT_THAT([&] { optimizer->step(); },
                throws_error(ErrorCode::kInvalidArgument, "there were 2 since the last step()"));
    backward();
    optimizer->step();
    optimizer.reset();
    EXPECT_THAT(backward, throws_error(ErrorCode::kInvalidArgument, "the optimizer"));
  });
}

TEST(OverlappedZeroRedundancyOptimizer, AParameterThatWasNotSteppedIsSaid) {
  run_ranks(2, [&](const Group& group) {
    Model model(Scalars(), group);
    ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(
        group, model.parameters(), torch::optim::SGDOptions(0.1));
    optimizer.overlap_with(model);
    model(Factors{1, 0, 3}).backward();
    EXPECT_THAT(
        [&] { optimizer.step(); },
        throws_error(ErrorCode::kInvalidArgument, "no gradient for a parameter of bucket 0"));
  });
}

TEST(OverlappedZeroRedundancyOptimizer, AStepHalfMadeIsNotGoneOnFrom) {
  run_ranks(2, [&](const Group& group) {
    Net net(make_seeded_net(), group, {.bucket_cap_mb = 1e-6, .first_bucket_cap_mb = 1e-6});
    ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(
        group, net.parameters(), torch::optim::SGDOptions(0.1));
    optimizer.overlap_with(net);
    bool fails = group->rank() == 1;
    net.module()->conv->weight.register_hook([&](const at::Tensor& gradient) {
      if (fails) {
        throw std::runtime_error("no luck");
      }
      return gradient;
    });
    const auto backward = [&] {
      loss_of(net, make_sample(0, group->rank(), 4, torch::kFloat)).backward();
    };
    EXPECT_ANY_THROW(backward());
    fails = false;
    EXPECT_THAT(backward, throws_error(ErrorCode::kInvalidArgument, "aborted with a part"));
  });
}

// Returns the stderr of a training of five steps.
template <class Inner, class Options>
std::string warnings_of(const Options& options, bool is_made_anew, bool is_overlapped = false) {
  ::testing::internal::CaptureStderr();
  run_ranks(2, [&](const Group& group) {
    Net net(make_seeded_net(), group, {.bucket_cap_mb = 1e-6, .first_bucket_cap_mb = 1e-6});
    const auto make = [&] {
      return std::make_unique<ZeroRedundancyOptimizer<Inner>>(group, net.parameters(), options);
    };
    auto optimizer = make();
    if (is_overlapped) {
      optimizer->overlap_with(net);
    }
    for (int step = 0; step < 5; ++step) {
      if (is_made_anew) {
        optimizer = make();
      }
      train_step(net, *optimizer, group->rank(), step);
    }
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(ZeroRedundancyOptimizer, WarnsOfAnOptimizerThatIsMadeInTheLoop) {
  using namespace torch::optim;
  const auto is_said = HasSubstr("make the optimizer once, before the loop");
  EXPECT_THAT(warnings_of<Adam>(AdamOptions(0.01), true), is_said);
  EXPECT_THAT(warnings_of<SGD>(SGDOptions(0.01), true), is_said);
  EXPECT_THAT(warnings_of<Adam>(AdamOptions(0.01), false), Not(is_said));
  EXPECT_THAT(warnings_of<SGD>(SGDOptions(0.01), false), Not(is_said)) << "which has no state";
  EXPECT_THAT(warnings_of<SGD>(SGDOptions(0.01), false, true), Not(is_said));
}

TEST(ZeroRedundancyOptimizer, WhatIsMissingIsSaid) {
  using Optimizer = ZeroRedundancyOptimizer<torch::optim::SGD>;
  const ConvNet net = make_seeded_net();
  const torch::optim::SGDOptions options(0.1);
  EXPECT_THAT([&] { const Optimizer refused(nullptr, net->parameters(), options); },
              throws_error(ErrorCode::kInvalidArgument, "the process group is null"));
  run_ranks(1, [&](const Group& group) {
    EXPECT_THAT([&] { const Optimizer refused(group, std::vector<at::Tensor>{}, options); },
                throws_error(ErrorCode::kInvalidArgument, "there are no parameters"));
  });
}

}  // namespace
}  // namespace unisono::testing
