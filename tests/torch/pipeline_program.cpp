// One rank of a pipeline with one stage per rank: pipeline_program [RANK HOW [SCHEDULE
// [REPLICAS]]]. In the middle of a step RANK
//
//   dies      kills itself;
//   stops     stops itself;
//   computes  takes a long time for a chunk.
//
// The environment defines the rank of this process in the job.

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

namespace {

using unisono::parallel::MakeStage;
using unisono::parallel::Mesh;
using unisono::parallel::MeshDimension;
using unisono::parallel::Pipeline;
using unisono::parallel::Stage;
using unisono::parallel::Tensors;

constexpr int kSpecialCall = 2;
// Stall reports come after 0.3 s.
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

// Returns a stage that calls halt(how); "" for no halt.
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

struct Arguments {
  std::string rank;
  std::string how;
  std::string schedule = "1f1b";
  int n_replicas = 1;
};

void train(const std::shared_ptr<unisono::ProcessGroup>& group, const Arguments& arguments) {
  const bool is_special = std::to_string(group->rank()) == arguments.rank;
  const MakeStage make = [&](int /*stage*/) { return make_stage(is_special ? arguments.how : ""); };
  const int n_stages = group->world_size() / arguments.n_replicas;
  std::optional<Mesh> mesh;
  if (arguments.n_replicas > 1) {
    mesh.emplace(group,
                 std::vector<MeshDimension>{{"data", arguments.n_replicas}, {"pipe", n_stages}});
  }
  Pipeline model(mesh ? mesh->group("pipe") : group,
                 make,
                 {.schedule = arguments.schedule,
                  .chunks = 4,
                  .data_group = mesh ? mesh->group("data") : nullptr});
  const auto loss = [](const at::Tensor& output, const at::Tensor& target) {
    return torch::nn::functional::mse_loss(output, target);
  };
  (void)model.train_step(torch::ones({8, 6}), torch::zeros({8, 6}), loss);
}

void run(const Arguments& arguments) {
  at::set_num_threads(1);
  const auto group = unisono::create_process_group();
  train(group, arguments);
  std::puts("done");
  group->destroy();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Arguments arguments;
    if (argc > 2) {
      arguments.rank = argv[1];
      arguments.how = argv[2];
    }
    if (argc > 3) {
      arguments.schedule = argv[3];
    }
    if (argc > 4) {
      arguments.n_replicas = std::stoi(argv[4]);
    }
    run(arguments);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
