// Prints rank 0's gradients of every step of a small model on two ranks. Each hook has a line: its
// name, then the elements.

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "rank_threads.h"

namespace {

using namespace unisono;
using Group = std::shared_ptr<ProcessGroup>;

constexpr int kSteps = 7;

struct NetImpl : torch::nn::Module {
  NetImpl()
      : hidden(register_module("hidden", torch::nn::Linear(24, 16))),
        head(register_module("head", torch::nn::Linear(16, 8))) {
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& parameter : parameters()) {
      parameter.copy_(torch::arange(1, parameter.numel() + 1).sin().view(parameter.sizes()) * 0.3);
    }
  }

  torch::Tensor forward(const torch::Tensor& x) { return head(torch::tanh(hidden(x))); }

  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear head{nullptr};
};

TORCH_MODULE(Net);

using Model = DistributedDataParallel<Net>;

// The hook of a case, and the averaging after each step.
struct Case {
  std::function<void(Model&, const Group&)> register_hook;
  std::int64_t averaging_period = 0;
};

Case power_sgd(const PowerSgdOptions& options) {
  return {.register_hook = [options](Model& model, const Group& group) {
    model.register_comm_hook(std::make_shared<PowerSgdState>(group, options), power_sgd_hook);
  }};
}

template <class Hook>
Case plain(Hook hook) {
  return {.register_hook = [hook](Model& model, const Group& /*group*/) {
    model.register_comm_hook(nullptr, hook);
  }};
}

std::map<std::string, Case> all_cases() {
  PowerSgdOptions power{.start_power_sgd_iter = 2, .min_compression_rate = 0.5};
  std::map<std::string, Case> cases{{"allreduce", plain(allreduce_hook)},
                                    {"fp16", plain(fp16_compress_hook)},
                                    {"bf16", plain(bf16_compress_hook)},
                                    {"power1", power_sgd(power)}};
  power.matrix_approximation_rank = 2;
  cases["power2"] = power_sgd(power);
  power.matrix_approximation_rank = 4;
  cases["power4"] = power_sgd(power);
  power.use_error_feedback = false;
  power.random_seed = 5;
  cases["power4_without_error"] = power_sgd(power);
  power.warm_start = false;
  cases["power4_cold"] = power_sgd(power);
  cases["power1_by_default_rate"] = power_sgd({.start_power_sgd_iter = 3});
  cases["post_local_sgd"] = {.register_hook =
                                 [](Model& model, const Group& group) {
                                   model.register_comm_hook(
                                       std::make_shared<PostLocalSgdState>(PostLocalSgdState{
                                           .group = group, .start_local_sgd_iter = 2}),
                                       post_local_sgd_hook);
                                 },
                             .averaging_period = 2};
  return cases;
}

torch::Tensor make_input(int step, int rank) {
  return (torch::arange(1, 10 * 24 + 1, torch::kFloat) * (0.37 * (step + 1) + 0.11 * rank))
      .cos()
      .view({10, 24});
}

void append_gradients(const Model& model, std::vector<float>& numbers) {
  for (const torch::Tensor& parameter : model.parameters()) {
    const torch::Tensor flat = parameter.grad().reshape({-1});
    const auto* const begin = flat.const_data_ptr<float>();
    numbers.insert(numbers.end(), begin, begin + flat.numel());
  }
}

std::vector<float> train(const Case& what, const Group& group) {
  Model model(Net(), group);
  what.register_hook(model, group);
  torch::optim::SGD optimizer(model.parameters(), 0.5);
  PeriodicModelAverager averager(group, what.averaging_period > 0 ? what.averaging_period : 1, 2);
  std::vector<float> numbers;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor x = make_input(step, group->rank());
    torch::mse_loss(model(x), x.narrow(1, 0, 8)).backward();
    append_gradients(model, numbers);
    optimizer.step();
    if (what.averaging_period > 0) {
      averager.average_parameters(model.parameters());
    }
  }
  return numbers;
}

void print_cases(const Group& group) {
  for (const auto& [name, what] : all_cases()) {
    const std::vector<float> numbers = train(what, group);
    if (group->rank() == 0) {
      std::printf("%s", name.c_str());
      for (const float number : numbers) {
        std::printf(" %.9g", static_cast<double>(number));
      }
      std::printf("\n");
    }
  }
}

}  // namespace

int main() {
  try {
    testing::run_ranks(2, print_cases);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
