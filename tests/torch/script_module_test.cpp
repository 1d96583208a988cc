// TorchScript modules under DistributedDataParallel.

#include "unisono/torch/ddp/script_module.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/tensor.h"

#include "canonical.h"
#include "rank_threads.h"
#include "scalars.h"
#include "support/temporary_folder.h"

namespace unisono::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

constexpr int kSteps = 6;  // Scripts are recompiled in their first passes.

// A linear layer within a module that counts its calls in a buffer.
ScriptModule make_script(const std::string& returns = "y") {
  torch::jit::Module layer("layer");
  layer.register_parameter(
      "weight", torch::arange(12.0).view({3, 4}).sin().requires_grad_(), false);
  layer.register_parameter("bias", torch::arange(3.0).cos().requires_grad_(), false);
  layer.define(R"(
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.linear(x, self.weight, self.bias))
  )");
  torch::jit::Module module("net");
  module.register_module("layer", layer);
  module.register_buffer("n_calls", torch::zeros({1}));
  module.define(R"(
    def forward(self, x: Tensor, factor: float):
        self.n_calls.add_(1)
        y = self.layer.forward(x) * factor
        return )" +
                returns + "\n");
  return ScriptModule(module);
}

torch::Tensor script_input(int rank, int step) {
  return torch::arange(20.0).view({5, 4}).mul(0.1 * (step + 1)).add(rank).sin();
}

TEST(ScriptModule, TrainsAsTheSameModuleOfCpp) {
  run_ranks(3, [](const Group& group) {
    const ScriptModule script = make_script();
    const torch::nn::Linear linear(4, 3);
    {
      const torch::NoGradGuard no_grad;
      linear->weight.copy_(script.parameters()[0]);
      linear->bias.copy_(script.parameters()[1]);
    }
    DistributedDataParallel model(script, group);
    DistributedDataParallel twin(linear, group);
    torch::optim::SGD optimizer(model.parameters(), 0.1);
    torch::optim::SGD of_twin(twin.parameters(), 0.1);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      of_twin.zero_grad();
      const torch::Tensor x = script_input(group->rank(), step);
      model(x, 2.0).toTensor().sum().backward();
      (torch::tanh(twin(x)) * 2.0).sum().backward();
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(model.parameters()[i].grad().allclose(twin.parameters()[i].grad(), 1e-5, 1e-6));
      }
      optimizer.step();
      of_twin.step();
    }
    EXPECT_FALSE(script.parameters()[0].allclose(make_script().parameters()[0]));
    model.check_consistent();
  });
}

// Values differ between ranks before construction, and buffers after a pass. Then both are replaced
// by rank 0's values.
TEST(ScriptModule, StartsWithRankZerosValuesAndFollowsItsBuffers) {
  run_ranks(2, [](const Group& group) {
    ScriptModule script = make_script();
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& parameter : script.parameters()) {
      parameter.add_(group->rank());
    }
    DistributedDataParallel model(script, group);
    EXPECT_TRUE(is_bit_equal(model.parameters(), make_script().parameters()));
    EXPECT_THAT(script.named_parameters()[0].key(), "layer.weight");
    model(script_input(0, 0), 1.0);
    script.named_buffers()[0].value().add_(10 * group->rank());
    model(script_input(0, 0), 1.0);
    EXPECT_EQ(script.named_buffers()[0].value().item<double>(), 2);
  });
}

TEST(ScriptModule, IsSavedByRankZeroAndLoadedAsAnyScript) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/model.pt";
  run_ranks(2, [&](const Group& group) {
    ScriptModule script = make_script();
    DistributedDataParallel model(script, group);
    torch::optim::SGD optimizer(model.parameters(), 0.1);
    model(script_input(group->rank(), 0), 2.0).toTensor().sum().backward();
    optimizer.step();
    save_on_rank_0(*group, model.module(), path);
    torch::jit::Module loaded = torch::jit::load(path);
    const torch::Tensor x = script_input(0, 3);
    EXPECT_TRUE(loaded.forward({x, 2.0}).toTensor().equal(script.forward(x, 2.0).toTensor()));
    EXPECT_TRUE(is_bit_equal(ScriptModule(loaded).parameters(), model.parameters()));
    // A loaded module can be trained further.
    DistributedDataParallel again(ScriptModule(loaded), group);
    again(x, 1.0).toTensor().sum().backward();
    EXPECT_TRUE(again.parameters()[0].grad().defined());
    expect_error(ErrorCode::kSystem, HasSubstr("no_such_folder"), [&] {
      save_on_rank_0(*group, model.module(), folder.path() + "/no_such_folder/model.pt");
    });
  });
}

TEST(ScriptModule, ReturnsTuplesAndLists) {
  for (const std::string returns :
       {"(y, [y * 2, self.layer.bias], 3)", "[y, y * 2, self.layer.bias]"}) {
    run_ranks(2, [&](const Group& group) {
      DistributedDataParallel model(make_script(returns), group);
      for (int step = 0; step < kSteps; ++step) {
        model.zero_grad();
        c10::IValue result = model(script_input(group->rank(), step), 1.0);
        std::vector<at::Tensor*> tensors;
        collect_tensors(result, tensors);
        ASSERT_EQ(tensors.size(), 3U);
        // The gradient reaches the parameters through each output; in one pass the output is `bias`
        // itself.
        (*tensors[static_cast<std::size_t>(step % 2)] * (group->rank() + 1)).sum().backward();
        const torch::Tensor mine = model.parameters()[0].grad().clone();
        const torch::Tensor of_root = mine.clone();
        broadcast(*group, of_root);
        EXPECT_TRUE(mine.equal(of_root)) << "averaged, so equal";
      }
      model.zero_grad();
      c10::IValue result = model(script_input(group->rank(), 0), 1.0);
      std::vector<at::Tensor*> tensors;
      collect_tensors(result, tensors);
      (*tensors[0] * 0 + *tensors[2] * (group->rank() + 1.0)).sum().backward();
      EXPECT_TRUE(model.parameters()[1].grad().eq(5 * 1.5).all().item<bool>())
          << model.parameters()[1].grad();
    });
  }
}

TEST(ScriptModule, ReturnsNoDictionary) {
  run_ranks(1, [](const Group& group) {
    DistributedDataParallel model(make_script("{'y': y}"), group);
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("return them as a tuple or list"), [&] {
      (void)model(script_input(0, 0), 1.0);
    });
  });
}

}  // namespace
}  // namespace unisono::testing
