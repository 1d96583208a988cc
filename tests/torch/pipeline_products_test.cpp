// Pipelines that add the gradients of weights within the matrix products. Compares these pipelines
// with one process that computes the same chunks one after the other.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/tensor/named_tensor.h"

#include "pipelines.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using parallel::Pipeline;
using parallel::PipelineOptions;

constexpr std::int64_t kWidth = 128;
constexpr int kChunks = 4;

// A weight in the layout of matmul.
struct ProductImpl : torch::nn::Module {
  ProductImpl() : weight(register_parameter("weight", torch::empty({kWidth, kWidth}))) {}

  torch::Tensor forward(const torch::Tensor& input) { return torch::matmul(input, weight); }

  torch::Tensor weight;
};

TORCH_MODULE(Product);

// A batch of sequences, which linear layers treat as a batch of rows.
struct InSequencesImpl : torch::nn::Module {
  InSequencesImpl() : linear(register_module("linear", torch::nn::Linear(kWidth, kWidth))) {}

  torch::Tensor forward(const torch::Tensor& input) {
    return linear(input.view({-1, 2, kWidth})).view({-1, kWidth});
  }

  torch::nn::Linear linear;
};

TORCH_MODULE(InSequences);

struct TwiceImpl : torch::nn::Module {
  TwiceImpl() : linear(register_module("linear", torch::nn::Linear(kWidth, kWidth))) {}

  torch::Tensor forward(const torch::Tensor& input) { return linear(torch::tanh(linear(input))); }

  torch::nn::Linear linear;
};

TORCH_MODULE(Twice);

// One transposed weight in two products.
struct TransposedOnceImpl : torch::nn::Module {
  TransposedOnceImpl() : weight(register_parameter("weight", torch::empty({kWidth, kWidth}))) {}

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor transposed = weight.t();
    return torch::mm(torch::tanh(torch::mm(input, transposed)), transposed);
  }

  torch::Tensor weight;
};

TORCH_MODULE(TransposedOnce);

// Five weights with one product each.
torch::nn::Sequential make_wide() {
  torch::nn::Sequential model(
      torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)),
      torch::nn::Tanh(),
      torch::nn::Linear(kWidth, 2 * kWidth),
      torch::nn::ReLU(),
      torch::nn::Linear(2 * kWidth, kWidth),
      Product(),
      InSequences());
  fill(*model);
  return model;
}

constexpr int kWeights = 5;

// Weights with gradients that are not only the product.
torch::nn::Sequential make_special() {
  torch::nn::Linear hooked(kWidth, kWidth);
  torch::nn::Sequential model(Twice(), TransposedOnce(), torch::nn::Tanh(), hooked);
  fill(*model);
  hooked->weight.register_hook([](const torch::Tensor& gradient) { return gradient * 3; });
  return model;
}

torch::Tensor make_rows(std::int64_t n) {
  torch::nn::Linear values(kWidth, n);
  fill(*values);
  return values->weight.detach();
}

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

Named expect_of(torch::nn::Sequential model, const torch::Tensor& rows) {
  at::set_num_threads(1);
  for (const torch::Tensor& chunk : rows.chunk(kChunks)) {
    (loss_of(model->forward(chunk), chunk.cos()) / kChunks).backward();
  }
  return gradients_of(model);
}

void train_step(Pipeline& model, const torch::Tensor& rows) {
  (void)model.train_step(rows, rows.cos(), loss_of);
}

std::atomic<int> n_added{0};

std::unique_ptr<at::ObserverContext> count_added(const at::RecordFunction& call) {
  if (std::string_view(call.name()) == "aten::addmm_") {
    ++n_added;
  }
  return nullptr;
}

// Counts the products that were added in place in all threads during the object's lifetime.
class AddedProducts {
 public:
  AddedProducts()
      : callback_(at::addGlobalCallback(
            at::RecordFunctionCallback(&count_added).scopes({at::RecordScope::FUNCTION}))) {}

  ~AddedProducts() { at::removeCallback(callback_); }

  AddedProducts(const AddedProducts&) = delete;
  AddedProducts& operator=(const AddedProducts&) = delete;
  AddedProducts(AddedProducts&&) = delete;
  AddedProducts& operator=(AddedProducts&&) = delete;

  [[nodiscard]] int count() const { return n_added - before_; }

 private:
  int before_ = n_added;
  at::CallbackHandle callback_;
};

constexpr std::size_t kSmallestWeight = kWidth * kWidth * sizeof(float);

// Counts the tensors of at least the size of a weight that this thread has allocated during the
// object's lifetime.
class LargeAllocations {
 public:
  LargeAllocations()
      : count_(std::make_shared<Count>()), guard_(c10::DebugInfoKind::PROFILER_STATE, count_) {}

  [[nodiscard]] int count() const { return count_->n; }

 private:
  struct Count : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*memory*/,
                           std::int64_t change,
                           std::size_t /*total_allocated*/,
                           std::size_t /*total_reserved*/,
                           c10::Device /*device*/) override {
      n += change >= static_cast<std::int64_t>(kSmallestWeight) ? 1 : 0;
    }

    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

    int n = 0;
  };

  std::shared_ptr<Count> count_;
  c10::DebugInfoGuard guard_;
};

// Returns true if this machine's library computes the same bits in both ways.
bool are_alike(std::int64_t n_rows) {
  const torch::Tensor rows = make_rows(n_rows);
  const torch::Tensor product = torch::mm(rows.t(), rows);
  const torch::Tensor sum = product.cos();
  return torch::equal(sum + product, sum.clone().addmm_(rows.t(), rows));
}

class PipelineProducts : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(PipelineProducts, HaveTheBitsOfOneProcess) {
  const torch::Tensor rows = make_rows(kChunks * GetParam());
  for (const auto& make : {make_wide, make_special}) {
    const Named expected = expect_of(make(), rows);
    for (const auto* const schedule : {"1f1b", "zb_h1"}) {
      for (const int world_size : {1, 2}) {
        run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
          Pipeline model(group, make(), PipelineOptions{.schedule = schedule, .chunks = kChunks});
          // The first step determines the shapes.
          for (int step = 0; step < 2; ++step) {
            model.zero_grad();
            train_step(model, rows);
            EXPECT_EQ(difference(gradients_of(model.named_parameters()), expected), "")
                << schedule << " of " << world_size << ", step " << step;
          }
        });
      }
    }
  }
}

// The last parameter has more rows than any library sums up in registers.
INSTANTIATE_TEST_SUITE_P(Rows, PipelineProducts, ::testing::Values(2, 24, 1024));

TEST(PipelineProducts, AreAddedInPlaceFromTheSecondChunkOn) {
  constexpr std::int64_t kRows = 24;
  const torch::Tensor rows = make_rows(kChunks * kRows);
  const int per_step = are_alike(kRows) && are_alike(2 * kRows) ? (kChunks - 1) * kWeights : 0;
  for (const auto* const schedule : {"1f1b", "zb_h1"}) {
    for (const int world_size : {1, 2}) {
      run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
        Pipeline model(
            group, make_wide(), PipelineOptions{.schedule = schedule, .chunks = kChunks});
        // The first step determines the shapes, and the second step tests these shapes.
        for (int step = 0; step < 2; ++step) {
          train_step(model, rows);
          model.zero_grad();
        }
        const std::optional<AddedProducts> added =
            group->rank() == 0 ? std::optional<AddedProducts>(std::in_place) : std::nullopt;
        group->barrier();
        train_step(model, rows);
        group->barrier();
        if (added) {
          EXPECT_EQ(added->count(), per_step) << schedule << " of " << world_size;
        }
      });
    }
  }
}

// Each weight's gradient is one tensor. All products share one buffer, which grows once if a larger
// weight follows a smaller one.
TEST(PipelineProducts, ShareTheirMemoryInTheFirstStep) {
  const torch::Tensor rows = make_rows(kChunks * 24);
  for (const auto* const schedule : {"1f1b", "zb_h1"}) {
    for (const int world_size : {1, 2}) {
      run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
        Pipeline model(
            group, make_wide(), PipelineOptions{.schedule = schedule, .chunks = kChunks});
        int n_weights = 0;
        for (const NamedTensor& parameter : model.named_parameters()) {
          n_weights += parameter.tensor.nbytes() >= kSmallestWeight ? 1 : 0;
        }
        const LargeAllocations large;
        train_step(model, rows);
        EXPECT_GE(large.count(), n_weights) << schedule << " of " << world_size;
        EXPECT_LE(large.count(), n_weights + 2) << schedule << " of " << world_size;
      });
    }
  }
}

TEST(PipelineProducts, AreNotAddedWhereTheWeightsGradientIsMore) {
  const torch::Tensor rows = make_rows(kChunks * 24);
  run_ranks(1, [&](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_special(), PipelineOptions{.chunks = kChunks});
    const AddedProducts added;
    for (int step = 0; step < 3; ++step) {
      train_step(model, rows);
    }
    EXPECT_EQ(added.count(), 0);
  });
}

}  // namespace
}  // namespace unisono::testing
