#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "unisono/base/error.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

namespace unisono::testing {

/// Three scalars w0, w1 and w2 with value 1. The gradient of w_i's term is its factor.
struct ScalarsImpl : torch::nn::Module {
  ScalarsImpl();

  /// Terms with factor 0 leave their parameter out of the graph.
  torch::Tensor forward(const std::vector<double>& factors);

  std::array<torch::Tensor, 3> w;
};

TORCH_MODULE(Scalars);

using Model = DistributedDataParallel<Scalars>;
using Factors = std::vector<double>;

/// Returns the gradients of w0, w1 and w2; std::nullopt if undefined.
[[nodiscard]] std::vector<std::optional<float>> gradients_of(const Model& model);

[[nodiscard]] std::vector<std::optional<float>> values(const std::vector<float>& numbers);

/// Expects that `body` throws this Error.
void expect_error(ErrorCode code,
                  const ::testing::Matcher<std::string>& message,
                  const std::function<void()>& body);

/// Runs `body` on two ranks. `body` also gets the rank as a number.
void on_two_ranks(const DistributedDataParallelOptions& options,
                  const std::function<void(Model& model, double rank)>& body);
void on_two_ranks(const std::function<void(Model& model, double rank)>& body);

/// Like on_two_ranks(), but w1 was frozen when the model was wrapped.
void on_two_frozen(const DistributedDataParallelOptions& options,
                   const std::function<void(Model& model, double rank)>& body);

/// Makes the parameter require a gradient.
void thaw(Model& model, std::size_t parameter);

}  // namespace unisono::testing
