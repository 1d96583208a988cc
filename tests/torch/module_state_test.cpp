// Models and optimizers in safetensors files, under the parameters' names.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/save.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/tensor/hash.h"

#include "rank_threads.h"
#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using test::throws_error;

torch::nn::Sequential make_module(int seed = 1) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  torch::nn::Sequential module(
      torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::Conv2d(4, 2, 3));
  // Strides that files do not preserve.
  at::Tensor weight = module->parameters()[0];
  weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  return module;
}

std::uint64_t hash(const torch::nn::Sequential& module) {
  std::vector<at::Tensor> tensors = module->parameters();
  for (const at::Tensor& buffer : module->buffers()) {
    tensors.push_back(buffer);
  }
  return hash_tensors(tensors);
}

template <class Optimizer>
void train(torch::nn::Sequential& module, Optimizer& optimizer, int n_steps) {
  for (int step = 0; step < n_steps; ++step) {
    optimizer.zero_grad();
    module->forward(torch::randn({5, 3, 8, 8})).square().mean().backward();
    optimizer.step();
  }
}

class ModuleStates : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.path() + "/model.safetensors"; }

  test::TemporaryFolder folder_;
};

TEST_F(ModuleStates, AModuleComesBackBitForBitAndKeepsItsStrides) {
  const torch::nn::Sequential saved = make_module(1);
  save_state(path(), module_state(*saved));
  torch::nn::Sequential loaded = make_module(2);
  ASSERT_NE(hash(loaded), hash(saved));
  const auto* const memory = loaded->parameters()[0].const_data_ptr();
  load_module_state(*loaded, load_state(path()));
  EXPECT_EQ(hash(loaded), hash(saved));
  EXPECT_EQ(loaded->parameters()[0].const_data_ptr(), memory);
  EXPECT_TRUE(loaded->parameters()[0].is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(loaded->parameters()[0].requires_grad());
}

TEST_F(ModuleStates, NamesOfAWrappedModuleAreTaken) {
  const torch::nn::Sequential saved = make_module(1);
  TensorState wrapped;
  add_state(wrapped, "module.", module_state(*saved));
  torch::nn::Sequential loaded = make_module(2);
  load_module_state(*loaded, wrapped);
  EXPECT_EQ(hash(loaded), hash(saved));
  EXPECT_THAT([&] { add_state(wrapped, "module.", module_state(*saved)); },
              throws_error(ErrorCode::kInvalidArgument, "two tensors", "module.0.bias"));
}

TEST_F(ModuleStates, WhatDoesNotFitChangesNothingAndIsNamed) {
  torch::nn::Sequential module = make_module();
  const std::uint64_t before = hash(module);
  TensorState state = module_state(*make_module(2));
  state.erase("0.bias");
  state["0.weight"] = torch::zeros({4, 3, 3, 1});
  state["1.num_batches_tracked"] = torch::zeros({}, at::kInt);
  state["3.weight"] = torch::zeros({1});
  EXPECT_THAT([&] { load_module_state(*module, state); },
              throws_error(ErrorCode::kInvalidArgument,
                           "\"0.bias\" is missing",
                           "\"0.weight\" is f32[4, 3, 3, 1], but the module has f32[4, 3, 3, 3]",
                           "\"1.num_batches_tracked\" is i32[], but the module has i64[]",
                           "\"3.weight\" is not the module's"));
  EXPECT_EQ(hash(module), before);
}

TEST_F(ModuleStates, TensorsThatFilesCantHoldAreNamed) {
  EXPECT_THAT([&] { save_state(path(), {{"a", torch::zeros({2}).to_sparse()}}); },
              throws_error(ErrorCode::kInvalidArgument, "\"a\"", "to_dense()"));
  EXPECT_THAT([&] { save_state(path(), {{"a", torch::zeros({2}, at::kComplexDouble)}}); },
              throws_error(ErrorCode::kInvalidArgument, "\"a\"", "c128"));
  EXPECT_THAT([&] { save_state(path(), {{"a", at::Tensor()}}); },
              throws_error(ErrorCode::kInvalidArgument, "\"a\"", "dense"));
}

// Returns each byte of the tensor's memory in row-major order.
std::vector<std::uint8_t> bytes_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().view(at::kByte).contiguous();
  const auto* const first = bytes.const_data_ptr<std::uint8_t>();
  return {first, first + bytes.numel()};
}

// Returns all 256 byte values in 16 columns, as a tensor of another type.
at::Tensor every_byte(at::ScalarType type) {
  return torch::arange(256, at::kInt).to(at::kByte).reshape({16, 16}).view(type);
}

constexpr std::array kSmallFloats{at::ScalarType::Float8_e4m3fn,
                                  at::ScalarType::Float8_e5m2,
                                  at::ScalarType::Float8_e4m3fnuz,
                                  at::ScalarType::Float8_e5m2fnuz,
                                  at::ScalarType::Float8_e8m0fnu,
                                  at::ScalarType::Float4_e2m1fn_x2};

TEST_F(ModuleStates, FloatsOf8And4BitsComeBackBitForBit) {
  TensorState saved;
  for (const at::ScalarType type : kSmallFloats) {
    saved[std::string(c10::toString(type))] = every_byte(type);
    saved[std::string(c10::toString(type)) + " columns"] = every_byte(type).t();
  }
  save_state(path(), saved);
  const auto expect_equal = [&](const TensorState& loaded) {
    ASSERT_EQ(loaded.size(), saved.size());
    for (const auto& [name, tensor] : saved) {
      EXPECT_EQ(loaded.at(name).scalar_type(), tensor.scalar_type()) << name;
      EXPECT_EQ(loaded.at(name).sizes(), tensor.sizes()) << name;
      EXPECT_EQ(bytes_of(loaded.at(name)), bytes_of(tensor)) << name;
    }
  };
  expect_equal(load_state(path()));
  // Large enough for a division among the ranks.
  saved["large"] = torch::arange(1 << 20, at::kInt)
                       .to(at::kByte)
                       .reshape({1 << 10, -1})
                       .view(at::ScalarType::Float8_e4m3fn);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const StateParts state = parts_to_save(*group, saved);
    checkpoint::save_checkpoint(*group, folder_.path(), 1, state.parts, {}, state.common);
    expect_equal(load_state(*group, folder_.path()));
  });
}

TEST_F(ModuleStates, TypesThatTorchLacksAreNamed) {
  const std::vector<std::byte> bytes(3);
  const auto loading = [&](const char* type, const std::vector<std::int64_t>& shape) {
    checkpoint::write_safetensors(
        path(),
        std::vector<checkpoint::TensorBytes>{
            {.info = {.name = "a",
                      .dtype = checkpoint::ElementType::named(type).value(),
                      .shape = shape},
             .bytes = bytes}});
    return [&] { (void)load_state(path()); };
  };
  EXPECT_THAT(loading("F6_E2M3", {4}),
              throws_error(ErrorCode::kInvalidArgument, "\"a\"", "f6_e2m3", "--prefix"));
  EXPECT_THAT(loading("F4", {6, 1}),
              throws_error(ErrorCode::kInvalidArgument, "\"a\"", "f4[6, 1]", "pairs"));
  const at::Tensor pair = torch::zeros({}, at::kByte).view(at::ScalarType::Float4_e2m1fn_x2);
  EXPECT_THAT([&] { save_state(path(), {{"a", pair}}); },
              throws_error(ErrorCode::kInvalidArgument, "\"a\"", "reshape({1})"));
}

TEST_F(ModuleStates, TensorsThatAreNegatedOnReadingAreSavedAsTheyRead) {
  const at::Tensor negated = at::imag(at::conj(at::complex(torch::ones({2}), torch::ones({2}))));
  ASSERT_TRUE(negated.is_neg());
  save_state(path(), {{"a", negated}});
  EXPECT_TRUE(torch::equal(load_state(path()).at("a"), torch::full({2}, -1.0F)));
}

TEST_F(ModuleStates, NumbersComeBackOrSayWhatIsThere) {
  save_state(path(), {{"i", number_tensor(std::int64_t{-7})}, {"r", number_tensor(0.1)}});
  const TensorState state = load_state(path());
  EXPECT_EQ(integer_in(state, "i"), -7);
  EXPECT_EQ(real_in(state, "r"), 0.1);
  EXPECT_THAT([&] { (void)integer_in(state, "r"); },
              throws_error(ErrorCode::kInvalidArgument, "\"r\" is f64[], no single i64"));
  EXPECT_THAT([&] { (void)real_in(state, "x"); },
              throws_error(ErrorCode::kInvalidArgument, "\"x\" is not there"));
}

// Expects the same results from an optimizer that continues after a save and from a new optimizer
// that has loaded the saved state.
template <class Optimizer, class Options>
void expect_same_future(const std::string& path, const Options& options) {
  torch::nn::Sequential module = make_module(1);
  Optimizer optimizer(module->parameters(), options);
  train(module, optimizer, 3);
  TensorState state;
  add_state(state, "model.", module_state(*module));
  add_state(state, "optimizer.", optimizer_state(optimizer, *module));
  save_state(path, state);

  torch::nn::Sequential other = make_module(2);
  Optimizer resumed(other->parameters(), Options(0.123));
  const TensorState loaded = load_state(path);
  load_module_state(*other, state_below(loaded, "model."));
  load_optimizer_state(resumed, *other, state_below(loaded, "optimizer."));
  torch::manual_seed(7);
  train(module, optimizer, 3);
  torch::manual_seed(7);
  train(other, resumed, 3);
  EXPECT_EQ(hash(other), hash(module));
}

TEST_F(ModuleStates, OptimizersGoOnToTheSameBits) {
  expect_same_future<torch::optim::SGD>(path(), torch::optim::SGDOptions(0.1).momentum(0.9));
  expect_same_future<torch::optim::Adam>(
      path(), torch::optim::AdamOptions(0.01).betas({0.8, 0.99}).amsgrad(true));
  expect_same_future<optim::Adadelta>(path(), optim::AdadeltaOptions(0.5).rho(0.8));
}

TEST_F(ModuleStates, AnOptimizerHasNothingOfItsOwnBesideWhatWasSaved) {
  torch::nn::Sequential module = make_module();
  optim::Adadelta optimizer(module->parameters(), optim::AdadeltaOptions(0.5));
  const TensorState before = optimizer_state(optimizer, *module);
  train(module, optimizer, 2);
  load_optimizer_state(optimizer, *module, before);
  EXPECT_EQ(optimizer_state(optimizer, *module).size(), before.size());
}

TEST_F(ModuleStates, OptimizerStateHasTheParametersNames) {
  torch::nn::Sequential module = make_module();
  optim::Adadelta optimizer(module->parameters(), optim::AdadeltaOptions(0.5));
  train(module, optimizer, 2);
  const TensorState state = optimizer_state(optimizer, *module);
  EXPECT_EQ(real_in(state, "options.0.lr"), 0.5);
  EXPECT_EQ(integer_in(state, "state.2.bias.step"), 2);
  EXPECT_EQ(state.at("state.0.weight.square_avg").sizes(), module->parameters()[0].sizes());
}

TEST_F(ModuleStates, AnotherOptimizersStateIsRefused) {
  torch::nn::Sequential module = make_module();
  torch::optim::SGD sgd(module->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train(module, sgd, 1);
  TensorState state = optimizer_state(sgd, *module);
  optim::Adadelta adadelta(module->parameters(), optim::AdadeltaOptions(0.5));
  const auto refuses = [&](torch::optim::Optimizer& optimizer, const std::string& expected) {
    EXPECT_THAT([&] { load_optimizer_state(optimizer, *module, state); },
                throws_error(ErrorCode::kInvalidArgument, expected));
  };
  refuses(adadelta, "but the optimizer has eps, lr, rho, weight_decay");
  state["state.9.weight.momentum_buffer"] = torch::zeros({1});
  refuses(sgd, "\"state.9.weight.momentum_buffer\" belongs to no parameter");
  state.erase("state.9.weight.momentum_buffer");
  state["state.0.bias.momentum_buffer"] = torch::zeros({1});
  refuses(sgd, "\"state.0.bias.momentum_buffer\" is f32[1], but the parameter is f32[4]");
  EXPECT_THAT([&] { (void)optimizer_state(sgd, *make_module()); },
              throws_error(ErrorCode::kInvalidArgument, "that is not the module's"));
}

TEST_F(ModuleStates, ChanceGoesOn) {
  torch::manual_seed(3);
  const at::Tensor state = random_state();
  const at::Tensor expected = torch::randn({4});
  set_random_state(state);
  EXPECT_TRUE(torch::equal(torch::randn({4}), expected));
  EXPECT_THAT([] { set_random_state(torch::zeros({3}, at::kByte)); },
              throws_error(ErrorCode::kInvalidArgument, "not a random generator's state"));
}

// Two ranks save a share each. Three ranks load the file before the model is wrapped.
TEST_F(ModuleStates, RanksLoadWhatOthersHaveSaved) {
  std::uint64_t saved = 0;
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(make_module(1), group);
    TensorState own{{"own" + std::to_string(group->rank()), torch::ones({2})}};
    const StateParts state = parts_to_save(*group, module_state(*model.module()), own);
    checkpoint::save_checkpoint(*group, folder_.path(), 5, state.parts, {}, state.common);
    if (group->rank() == 0) {
      saved = hash(model.module());
    }
  });
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::Sequential module = make_module(group->rank() + 2);
    TensorState state = load_state(*group, folder_.path());
    EXPECT_EQ(state.erase("own0") + state.erase("own1"), 2U);
    load_module_state(*module, state);
    EXPECT_EQ(hash(module), saved) << "rank " << group->rank();
  });
}

TEST_F(ModuleStates, WhatOneRankCantReadAllThrow) {
  save_state(path(), {{"a", torch::ones({2})}});
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    EXPECT_EQ(load_state(*group, path()).size(), 1U);
    EXPECT_THAT([&] { (void)load_state(*group, path() + "x"); },
                throws_error(ErrorCode::kNotFound, "rank 0 of 3: ", path() + "x"));
    EXPECT_EQ(load_state(*group, path()).size(), 1U) << "the group goes on";
  });
}

TEST_F(ModuleStates, WhatOneRankCantSaveAllAreTold) {
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    const bool is_bad = group->rank() == 1;
    const TensorState dense{{"a", torch::ones({2})}};
    const TensorState sparse{{"a", torch::ones({2}).to_sparse()}};
    const TensorState none{{"a", at::Tensor()}};
    for (const TensorState& bad : {sparse, none}) {
      EXPECT_THAT([&] { (void)parts_to_save(*group, is_bad ? bad : dense); },
                  throws_error(ErrorCode::kInvalidArgument,
                               "rank 1 of 3: checkpoint: tensor \"a\" must be dense"));
      EXPECT_THAT([&] { (void)parts_to_save(*group, {}, is_bad ? bad : dense); },
                  throws_error(ErrorCode::kInvalidArgument, "rank 1 of 3: ", "\"a\""));
    }
    const StateParts state = parts_to_save(*group, dense);
    checkpoint::save_checkpoint(*group, folder_.path(), 1, state.parts, {}, state.common);
    EXPECT_EQ(load_state(*group, folder_.path()).size(), 1U) << "the group goes on";
  });
}

// A layer split by rows on two ranks gives the same outputs on one and on four.
TEST_F(ModuleStates, AnotherSplitGivesEqualOutputs) {
  torch::manual_seed(1);
  const at::Tensor weight = torch::randn({8, 6});
  const at::Tensor input = torch::randn({3, 6});
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const at::Tensor rows = weight.narrow(0, group->rank() * 4, 4).contiguous();
    const std::vector<checkpoint::TensorPart> parts{
        {.tensor = {.name = "weight", .dtype = DType::kFloat32, .shape = {8, 6}},
         .box = {.offsets = {group->rank() * 4, 0}, .sizes = {4, 6}},
         .bytes = {static_cast<const std::byte*>(rows.const_data_ptr()), rows.nbytes()}}};
    checkpoint::save_checkpoint(*group, folder_.path(), 1, parts);
  });
  const at::Tensor expected = input.matmul(weight.t());
  for (const int world_size : {1, 4}) {
    for (int rank = 0; rank < world_size; ++rank) {
      checkpoint::Reader reader(folder_.path());
      const checkpoint::Box box = checkpoint::rows_of_rank({8, 6}, rank, world_size);
      const at::Tensor rows = read_part(reader, "weight", box);
      EXPECT_TRUE(torch::equal(rows, weight.narrow(0, box.offsets[0], box.sizes[0])));
      EXPECT_TRUE(torch::allclose(input.matmul(rows.t()),
                                  expected.narrow(1, box.offsets[0], box.sizes[0])));
    }
  }
}

}  // namespace
}  // namespace unisono::testing
