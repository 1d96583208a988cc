// One rank of a pipeline of a stage each: pipeline_program [RANK HOW]. In the middle of a step RANK
//   dies      kills itself;
//   stops     stops itself;
//   computes  takes long over a chunk.
// What this one is in the job, its environment says.

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

namespace {

using unisono::parallel::MakeStage;
using unisono::parallel::Pipeline;
using unisono::parallel::Stage;
using unisono::parallel::Tensors;

constexpr int kSpecialCall = 2;
// With reports after 0.3.
constexpr std::chrono::milliseconds kLong{1500};

void halt(const std::string& how) {
  if (how == "dies") {
    ::raise(SIGKILL);
  } else if (how == "stops") {
    ::raise(SIGSTOP);
  } else {
    std::this_thread::sleep_for(kLong);
  }
}

// `how`: what it does; "" for nothing.
Stage make_stage(const std::string& how) {
  torch::nn::Linear layer(6, 6);
  return {.module = layer.ptr(),
          .forward = [layer, how, n_calls = 0](const Tensors& inputs) mutable -> Tensors {
            if (n_calls++ == kSpecialCall && !how.empty()) {
              halt(how);
            }
            return {layer(inputs.at(0))};
          }};
}

void run(const std::string& special_rank, const std::string& how) {
  at::set_num_threads(1);
  const auto group = unisono::create_process_group();
  const bool is_special = std::to_string(group->rank()) == special_rank;
  const MakeStage make = [&](int /*stage*/) { return make_stage(is_special ? how : ""); };
  Pipeline model(group, make, {.chunks = 4});
  const auto loss = [](const at::Tensor& output, const at::Tensor& target) {
    return torch::nn::functional::mse_loss(output, target);
  };
  (void)model.train_step(torch::ones({8, 6}), torch::zeros({8, 6}), loss);
  std::puts("done");
  group->destroy();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc == 3 ? argv[1] : "", argc == 3 ? argv[2] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
