#include "measure.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <torch/optim/sgd.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "workload.h"

namespace bench {
namespace {

constexpr double kLearningRate = 0.01;
constexpr std::size_t kBlockSteps = 5;

template <class Model>
double time_step(Model& model, torch::optim::SGD& optimizer) {
  const auto start = std::chrono::steady_clock::now();
  optimizer.zero_grad();
  model.forward().backward();
  optimizer.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The first step of a block is not counted: it pays for what the block before it left behind.
template <class Model>
void time_block(Model& model, torch::optim::SGD& optimizer, std::vector<double>& times) {
  time_step(model, optimizer);
  for (std::size_t i = 0; i < kBlockSteps; ++i) {
    times.push_back(time_step(model, optimizer));
  }
}

void drop_warm_up(std::vector<double>& times, int n_steps) {
  times.erase(times.begin(), times.begin() + kBlockSteps);
  times.resize(static_cast<std::size_t>(n_steps));
}

bool is_enough(const std::vector<double>& times, int n_steps) {
  return times.size() >= kBlockSteps + static_cast<std::size_t>(n_steps);
}

}  // namespace

StepTimes measure_alone(const std::shared_ptr<Workload>& workload, int n_steps) {
  torch::optim::SGD optimizer(workload->parameters(), kLearningRate);
  StepTimes times;
  while (!is_enough(times.synchronized, n_steps)) {
    time_block(*workload, optimizer, times.synchronized);
  }
  drop_warm_up(times.synchronized, n_steps);
  return times;
}

StepTimes measure_ranks(const std::shared_ptr<unisono::ProcessGroup>& group,
                        const std::shared_ptr<Workload>& workload,
                        int n_steps) {
  unisono::DistributedDataParallel model(workload, group);
  torch::optim::SGD optimizer(model.parameters(), kLearningRate);
  StepTimes times;
  while (!is_enough(times.unsynchronized, n_steps)) {
    group->barrier();
    time_block(model, optimizer, times.synchronized);
    group->barrier();
    const auto guard = model.no_sync();
    time_block(model, optimizer, times.unsynchronized);
  }
  for (std::vector<double>* const part : {&times.synchronized, &times.unsynchronized}) {
    drop_warm_up(*part, n_steps);
    group->all_reduce(unisono::as_buffer(std::span(*part)), {.op = unisono::kMax});
  }
  return times;
}

}  // namespace bench
