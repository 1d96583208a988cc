// One rank of a pipeline of a stage each: pipeline_program [RANK]. That rank kills itself in the
// middle of a step. What this one is in the job, its environment says.

#include <signal.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>

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

constexpr int kDeadlyCall = 2;

Stage make_stage(bool is_deadly) {
  torch::nn::Linear layer(6, 6);
  return {.module = layer.ptr(),
          .forward = [layer, is_deadly, n_calls = 0](const Tensors& inputs) mutable -> Tensors {
            if (is_deadly && n_calls++ == kDeadlyCall) {
              ::raise(SIGKILL);
            }
            return {layer(inputs.at(0))};
          }};
}

void run(const std::string& dying_rank) {
  at::set_num_threads(1);
  const auto group = unisono::create_process_group();
  const bool is_deadly = std::to_string(group->rank()) == dying_rank;
  const MakeStage make = [&](int /*stage*/) { return make_stage(is_deadly); };
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
    run(argc > 1 ? argv[1] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
