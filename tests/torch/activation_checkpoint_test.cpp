// Forward passes that backward recomputes.

#include "unisono/torch/nn/activation_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/amp/amp.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "canonical.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using nn::CheckpointMode;
using ::testing::HasSubstr;
using torch::nn::Dropout;
using torch::nn::Linear;
using torch::nn::Sequential;
using torch::nn::Tanh;

Sequential make_net() {
  torch::manual_seed(1);
  return Sequential(
      Linear(6, 8), Tanh(), Dropout(0.5), Linear(8, 8), Tanh(), Dropout(0.5), Linear(8, 3));
}

constexpr CheckpointMode kModes[]{
    CheckpointMode::kNever, CheckpointMode::kAlways, CheckpointMode::kExceptLast};

// Returns the output, the gradients of the parameters and of the input, and a random number drawn
// afterwards.
std::vector<at::Tensor> results(CheckpointMode mode, std::size_t n_segments) {
  Sequential net = make_net();
  const at::Tensor x = torch::arange(24, torch::kFloat).sin().view({4, 6}).requires_grad_();
  torch::manual_seed(2);
  const at::Tensor y = nn::checkpoint_sequential(net, n_segments, x, mode);
  const at::Tensor before_backward = torch::rand({1});
  y.square().sum().backward();
  std::vector<at::Tensor> all = clone_gradients(net->parameters());
  all.push_back(y.detach());
  all.push_back(x.grad());
  all.push_back(before_backward);
  all.push_back(torch::rand({1}));
  return all;
}

TEST(ActivationCheckpoint, GradientsAndRandomNumbersAreThoseWithout) {
  const std::vector<at::Tensor> expected = results(CheckpointMode::kNever, 1);
  for (const CheckpointMode mode : kModes) {
    for (const std::size_t n_segments : {1U, 2U, 3U, 7U}) {
      EXPECT_TRUE(is_bit_equal(results(mode, n_segments), expected))
          << static_cast<int>(mode) << ", " << n_segments << " segments";
    }
  }
}

TEST(ActivationCheckpoint, ReachesParametersWhereNoInputNeedsAGradient) {
  Sequential net = make_net();
  const at::Tensor x = torch::ones({2, 6});
  nn::checkpoint_sequential(net, 1, x, CheckpointMode::kAlways).sum().backward();
  EXPECT_TRUE(net->parameters()[0].grad().defined());
}

TEST(ActivationCheckpoint, ComputesAgainUnderTheSameAutocast) {
  Linear net(4, 4);
  std::vector<at::ScalarType> types;
  const auto forward = [&](const at::Tensor& x) {
    const at::Tensor y = net->forward(x);
    types.push_back(y.scalar_type());
    return y;
  };
  at::Tensor y;
  {
    const Autocast autocast;
    y = nn::checkpoint(forward, torch::ones({2, 4}));
  }
  y.sum().backward();
  EXPECT_THAT(types, ::testing::ElementsAre(torch::kBFloat16, torch::kBFloat16));
}

// Counts the bytes of live tensors.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t n_bytes) override {
    auto block = std::make_unique<Block>(
        Block{.memory = c10::GetDefaultCPUAllocator()->allocate(n_bytes), .n_bytes = n_bytes});
    n_live += n_bytes;
    n_most = std::max<std::size_t>(n_most, n_live);
    void* const data = block->memory.get();
    return {data, block.release(), &free, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }

  static inline std::atomic<std::size_t> n_live = 0;
  static inline std::atomic<std::size_t> n_most = 0;

 private:
  struct Block {
    c10::DataPtr memory;
    std::size_t n_bytes;
  };

  static void free(void* block) {
    const std::unique_ptr<Block> owned(static_cast<Block*>(block));
    n_live -= owned->n_bytes;
  }
};

std::size_t most_bytes(CheckpointMode mode) {
  Sequential net;
  for (int i = 0; i < 16; ++i) {
    net->push_back(Linear(8, 8));
    net->push_back(Tanh());
  }
  const at::Tensor x = torch::ones({4096, 8});
  static CountingAllocator allocator;
  c10::Allocator* const before = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&allocator, 1);
  const std::size_t n_live = CountingAllocator::n_live;
  CountingAllocator::n_most = n_live;
  nn::checkpoint_sequential(net, 4, x, mode).sum().backward();
  c10::SetCPUAllocator(before, 1);
  return CountingAllocator::n_most - n_live;
}

TEST(ActivationCheckpoint, TakesLessMemory) {
  const std::size_t never = most_bytes(CheckpointMode::kNever);
  const std::size_t always = most_bytes(CheckpointMode::kAlways);
  const std::size_t except_last = most_bytes(CheckpointMode::kExceptLast);
  EXPECT_LT(always, never * 2 / 3);
  EXPECT_LT(except_last, never * 2 / 3);
}

struct CheckpointedImpl : torch::nn::Module {
  explicit CheckpointedImpl(CheckpointMode to_use)
      : mode(to_use),
        net(register_module("net", Sequential(Linear(6, 8), Tanh(), Linear(8, 8), Tanh()))) {}

  at::Tensor forward(const at::Tensor& x) { return nn::checkpoint_sequential(net, 2, x, mode); }

  CheckpointMode mode;
  Sequential net;
};

TORCH_MODULE(Checkpointed);

TEST(ActivationCheckpoint, WorksUnderDistributedDataParallelInEveryMode) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<std::vector<at::Tensor>> of_modes;
    for (const CheckpointMode mode : kModes) {
      Checkpointed module(mode);
      {
        const torch::NoGradGuard no_grad;
        for (const at::Tensor& parameter : module->parameters()) {
          parameter.copy_(torch::arange(parameter.numel()).cos().view(parameter.sizes()));
        }
      }
      DistributedDataParallel<Checkpointed> model(module, group);
      for (int step = 0; step < 2; ++step) {
        model.zero_grad();
        model(torch::full({3, 6}, 0.1 * (group->rank() + step))).sum().backward();
      }
      of_modes.push_back(clone_gradients(model.parameters()));
    }
    EXPECT_TRUE(is_bit_equal(of_modes[1], of_modes[0]));
    EXPECT_TRUE(is_bit_equal(of_modes[2], of_modes[0]));
  });
}

TEST(ActivationCheckpoint, RefusesGradientsOfChosenInputs) {
  Sequential net = make_net();
  const at::Tensor x = torch::ones({2, 6}, torch::requires_grad());
  const at::Tensor loss = nn::checkpoint_sequential(net, 1, x, CheckpointMode::kAlways).sum();
  expect_error(ErrorCode::kInvalidArgument, HasSubstr("use backward()"), [&] {
    (void)torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
  });
  EXPECT_FALSE(net->parameters()[0].grad().defined());
  loss.backward();
  EXPECT_TRUE(net->parameters()[0].grad().defined());
}

TEST(ActivationCheckpoint, ComplexOutputsHaveGradients) {
  const auto forward = [](const at::Tensor& x) {
    return torch::complex(x.sin(), x.cos().square());
  };
  const at::Tensor plain = torch::arange(4, torch::kFloat).requires_grad_();
  const at::Tensor kept = plain.detach().clone().requires_grad_();
  forward(plain).abs().sum().backward();
  nn::checkpoint(forward, kept).abs().sum().backward();
  EXPECT_TRUE(torch::equal(kept.grad(), plain.grad()));
}

TEST(ActivationCheckpoint, NamesANumberOfSegmentsThatDoesNotFit) {
  const at::Tensor x = torch::ones({1, 6});
  for (const std::size_t n_segments : {0U, 8U}) {
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("segments of 7 modules"), [&] {
      (void)nn::checkpoint_sequential(make_net(), n_segments, x);
    });
  }
}

}  // namespace
}  // namespace unisono::testing
