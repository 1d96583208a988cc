#include "scalars.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

#include "rank_threads.h"

namespace unisono::testing {

ScalarsImpl::ScalarsImpl() {
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = register_parameter("w" + std::to_string(i), torch::ones({1}));
  }
}

torch::Tensor ScalarsImpl::forward(const std::vector<double>& factors) {
  torch::Tensor sum = torch::zeros({1}, w[0].device());
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (factors[i] != 0) {
      sum = sum + w[i] * factors[i];
    }
  }
  return sum;
}

std::vector<std::optional<float>> gradients_of(const Model& model) {
  std::vector<std::optional<float>> gradients;
  for (const at::Tensor& parameter : model.parameters()) {
    const at::Tensor& gradient = parameter.grad();
    gradients.push_back(gradient.defined() ? std::optional(gradient.item<float>()) : std::nullopt);
  }
  return gradients;
}

std::vector<std::optional<float>> values(const std::vector<float>& numbers) {
  return {numbers.begin(), numbers.end()};
}

void expect_error(ErrorCode code,
                  const ::testing::Matcher<std::string>& message,
                  const std::function<void()>& body) {
  try {
    body();
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(std::string(error.what()), message);
  }
}

void on_two_ranks(const DistributedDataParallelOptions& options,
                  const std::function<void(Model& model, double rank)>& body) {
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    Model model(Scalars(), group, options);
    body(model, group->rank());
  });
}

void on_two_ranks(const std::function<void(Model& model, double rank)>& body) {
  on_two_ranks({}, body);
}

void on_two_frozen(const DistributedDataParallelOptions& options,
                   const std::function<void(Model& model, double rank)>& body) {
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const Scalars scalars;
    scalars->w[1].set_requires_grad(false);
    Model model(scalars, group, options);
    body(model, group->rank());
  });
}

void thaw(Model& model, std::size_t parameter) {
  model.module()->w[parameter].set_requires_grad(true);
}

}  // namespace unisono::testing
