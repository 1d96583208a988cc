// Checkpoints of divided models equal checkpoints of the whole model, for any number of saving and
// loading ranks.

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/save.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/layers.h"

#include "divided_models.h"
#include "rank_threads.h"
#include "scalars.h"
#include "support/temporary_folder.h"

namespace unisono::testing {
namespace {

using parallel::boxes_of_part;
using parallel::gather_state;
using parallel::join_parts;
using parallel::part_of;
using parallel::placed_optimizer_state;
using parallel::placed_tensors;
using parallel::PlacedTensor;
using parallel::read_optimizer_parts;
using parallel::read_parts;
using parallel::Split;
using parallel::sum_partial_gradients;
using parallel::with_prefix;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

constexpr const char* kModel = "model.";
constexpr const char* kOptimizer = "optimizer.";

struct Training {
  explicit Training(const Group& to_use)
      : group(to_use), model(make_divided(group, true)), optimizer(model->parameters(), 0.01) {}

  void step(int number) {
    optimizer.zero_grad();
    model->loss(make_text(number, 2)).backward();
    sum_partial_gradients(*model);
    optimizer.step();
  }

  void save(const std::string& root) const {
    std::vector<PlacedTensor> tensors = with_prefix(kModel, placed_tensors(*model));
    for (PlacedTensor& placed :
         with_prefix(kOptimizer, placed_optimizer_state(optimizer, *model))) {
      tensors.push_back(std::move(placed));
    }
    const StateParts state =
        parallel::parts_to_save(*group, tensors, {{"step", number_tensor(2.0)}});
    checkpoint::save_checkpoint(*group, root, 2, state.parts, {}, state.common);
  }

  void load(const std::string& root) {
    checkpoint::Reader reader(root);
    load_module_state(*model, read_parts(reader, placed_tensors(*model), kModel));
    load_optimizer_state(optimizer, *model, read_optimizer_parts(reader, *model, kOptimizer));
  }

  Group group;
  DividedTransformer model;
  torch::optim::Adam optimizer;
};

bool is_equal(const TensorState& a, const TensorState& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (const auto& [name, tensor] : a) {
    if (!b.contains(name) || !torch::equal(tensor, b.at(name))) {
      return false;
    }
  }
  return true;
}

TEST(DividedState, WhatTwoRanksSaveGoesOnOnAnyNumber) {
  const test::TemporaryFolder folder;
  TensorState saved;
  TensorState next;
  run_ranks(2, [&](const Group& group) {
    Training training(group);
    training.step(0);
    training.step(1);
    training.save(folder.path());
    TensorState whole = gather_state(placed_tensors(*training.model));
    for (auto& [name, tensor] : whole) {
      tensor = tensor.clone();
    }
    training.step(2);
    const TensorState whole_next = gather_state(placed_tensors(*training.model));
    if (group->rank() == 0) {
      saved = whole;
      next = whole_next;
    }
  });
  for (const int n_ranks : {1, 2, 4}) {
    run_ranks(n_ranks, [&](const Group& group) {
      Training training(group);
      training.load(folder.path());
      EXPECT_TRUE(is_equal(gather_state(placed_tensors(*training.model)), saved));
      training.step(2);
      expect_close(gather_state(placed_tensors(*training.model)), next);
    });
  }
  // torch::nn's model also loads the checkpoint.
  const TensorState file = load_state(folder.path());
  EXPECT_EQ(real_in(file, "step"), 2.0);
  WholeTransformer whole = make_whole();
  load_module_state(*whole, state_below(file, kModel));
  EXPECT_TRUE(is_equal(module_state(*whole), saved));
  torch::optim::Adam optimizer(whole->parameters(), 0.01);
  load_optimizer_state(optimizer, *whole, state_below(file, kOptimizer));
  optimizer.zero_grad();
  whole->loss(make_text(2, 2)).backward();
  optimizer.step();
  expect_close(module_state(*whole), next);
}

TEST(DividedState, TheWholesStateLoadsInParts) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/whole.safetensors";
  WholeTransformer whole = make_whole();
  {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : whole->parameters()) {
      parameter.add_(0.25);
    }
  }
  save_state(file, module_state(*whole));
  run_ranks(4, [&](const Group& group) {
    const TensorState state = load_state(file);
    DividedTransformer divided = make_divided(group, false);
    load_module_state(*divided, parallel::parts_of_state(state, placed_tensors(*divided)));
    EXPECT_TRUE(is_equal(gather_state(placed_tensors(*divided)), state));
    DividedTransformer other = make_divided(group, false);
    checkpoint::Reader reader(file);
    load_module_state(*other, read_parts(reader, placed_tensors(*other)));
    EXPECT_TRUE(is_equal(gather_state(placed_tensors(*other)), state));
  });
}

// A model that registers the divided weight itself under a second name that comes first.
struct TiedDividedImpl : torch::nn::Module {
  explicit TiedDividedImpl(const Group& group)
      : embedding(register_module(
            "embedding",
            parallel::VocabParallelEmbedding(
                parallel::VocabParallelEmbeddingOptions{.num_embeddings = 16, .embedding_dim = 8},
                group))),
        head(register_parameter("head", embedding->weight)) {}

  parallel::VocabParallelEmbedding embedding;
  torch::Tensor head;
};

TORCH_MODULE(TiedDivided);

TEST(DividedState, AWeightOfTwoNamesIsDividedUnderBothAndCountsOnce) {
  const test::TemporaryFolder folder;
  const torch::Tensor value = wave({16, 8}).to(torch::kFloat);
  const TensorState whole{{"embedding.weight", value}, {"head", value}};
  run_ranks(2, [&](const Group& group) {
    TiedDivided model(group);
    const std::vector<PlacedTensor> tensors = placed_tensors(*model);
    load_module_state(*model, parallel::parts_of_state(whole, tensors));
    EXPECT_TRUE(is_equal(gather_state(tensors), whole));
    const StateParts state = parallel::parts_to_save(*group, tensors);
    checkpoint::save_checkpoint(*group, folder.path(), 1, state.parts, {}, state.common);
    model->head.mutable_grad() = torch::ones_like(model->head);
    EXPECT_NEAR(parallel::clip_grad_norm(*model, 1e9), std::sqrt(16 * 8), 1e-6);
  });
  const TensorState file = load_state(folder.path());
  EXPECT_TRUE(is_equal(file, whole));
  const std::string one_name = folder.path() + "/one.safetensors";
  save_state(one_name, {{"embedding.weight", value}});
  run_ranks(2, [&](const Group& group) {
    TiedDivided model(group);
    checkpoint::Reader reader(one_name);
    load_module_state(*model, read_parts(reader, placed_tensors(*model)));
    EXPECT_TRUE(is_equal(gather_state(placed_tensors(*model)), whole));
  });
}

TEST(DividedState, NamesWhatDoesNotFit) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/whole.safetensors";
  TensorState state = module_state(*make_whole());
  state["head.weight"] = torch::ones({4, kModelSize});
  state.erase("first.norm1.bias");
  save_state(file, state);
  run_ranks(2, [&](const Group& group) {
    DividedTransformer divided = make_divided(group, false);
    const std::vector<PlacedTensor> tensors = placed_tensors(*divided);
    const auto wrong_shape =
        AllOf(HasSubstr("\"head.weight\" has the shape [4, 8]"), HasSubstr("has [16, 8]"));
    expect_error(ErrorCode::kInvalidArgument, wrong_shape, [&] {
      (void)parallel::parts_of_state(state, tensors);
    });
    checkpoint::Reader reader(file);
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("first.norm1.bias"), [&] {
      (void)read_parts(reader, tensors);
    });
    const Group other = group->split(0, group->rank());
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("ranks of another group"), [&] {
      (void)parallel::parts_to_save(*other, tensors);
    });
  });
}

TEST(Split, PartsMakeUpTheWhole) {
  const at::Tensor whole = wave({12, 6});
  for (const Split& split : {Split{.dim = 0}, Split{.dim = 1}, Split{.dim = 0, .n_blocks = 3}}) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < 2; ++rank) {
      parts.push_back(part_of(whole, split, rank, 2));
      EXPECT_EQ(parallel::whole_shape(parts.back().sizes(), split, 2), whole.sizes().vec());
    }
    EXPECT_TRUE(torch::equal(join_parts(parts, split), whole));
  }
  EXPECT_TRUE(torch::equal(
      part_of(whole, {.dim = 0, .n_blocks = 3}, 1, 2),
      torch::cat({whole.narrow(0, 2, 2), whole.narrow(0, 6, 2), whole.narrow(0, 10, 2)})));
  expect_error(ErrorCode::kInvalidArgument,
               HasSubstr("[12, 6] can't be cut along dimension 1"),
               [&] { (void)part_of(whole, {.dim = 1}, 0, 4); });
  EXPECT_EQ(boxes_of_part({12, 6}, {.dim = 1}, 1, 2),
            (std::vector<checkpoint::Box>{{.offsets = {0, 3}, .sizes = {12, 3}}}));
}

}  // namespace
}  // namespace unisono::testing
