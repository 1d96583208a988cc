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

/// Three scalars w0, w1, w2, all 1; the gradient of w_i's term is its factor.
struct ScalarsImpl : torch::nn::Module {
  ScalarsImpl();

  /// Terms with factor 0 leave their parameter out of the graph.
  torch::Tensor forward(const std::vector<double>& factors);

  std::array<torch::Tensor, 3> w;
};

TORCH_MODULE(Scalars);

using Model = DistributedDataParallel<Scalars>;
using Factors = std::vector<double>;

/// The gradients of w0, w1, w2; nothing where undefined.
[[nodiscard]] std::vector<std::optional<float>> gradients_of(const Model& model);

[[nodiscard]] std::vector<std::optional<float>> values(const std::vector<float>& numbers);

/// `body` must throw this Error.
void expect_error(ErrorCode code,
                  const ::testing::Matcher<std::string>& message,
                  const std::function<void()>& body);

/// Runs on two ranks; `body` gets the rank as a number, too.
void on_two_ranks(const DistributedDataParallelOptions& options,
                  const std::function<void(Model& model, double rank)>& body);
void on_two_ranks(const std::function<void(Model& model, double rank)>& body);

/// The same where w1 was frozen when the model was wrapped.
void on_two_frozen(const DistributedDataParallelOptions& options,
                   const std::function<void(Model& model, double rank)>& body);

/// From now on the parameter requires a gradient.
void thaw(Model& model, std::size_t parameter);

}  // namespace unisono::testing
