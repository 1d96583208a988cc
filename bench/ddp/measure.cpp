#include "measure.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/optim/sgd.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "hooks.h"
#include "memory.h"
#include "models.h"
#include "sha256.h"

namespace bench {
namespace {

using Wrapped = unisono::DistributedDataParallel<std::shared_ptr<Model>>;
using Step = std::function<void()>;

constexpr double kLearningRate = 0.01;
constexpr std::size_t kBlockSteps = 5;

double time_step(const Step& step) {
  const auto start = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The first step of a block is not counted: it pays for what the block before it left behind.
void time_block(const Step& step, std::vector<double>& times) {
  step();
  for (std::size_t i = 0; i < kBlockSteps; ++i) {
    times.push_back(time_step(step));
  }
}

void drop_warm_up(std::vector<double>& times, int n_steps) {
  times.erase(times.begin(), times.begin() + kBlockSteps);
  times.resize(static_cast<std::size_t>(n_steps));
}

bool is_enough(const std::vector<double>& times, int n_steps) {
  return times.size() >= kBlockSteps + static_cast<std::size_t>(n_steps);
}

// A model on this rank, and its step.
class Training {
 public:
  Training(const std::shared_ptr<unisono::ProcessGroup>& group, const Options& options)
      : options_(options),
        model_(make_model(options.model), group, {.logical_ranks = options.logical_ranks}),
        optimizer_(model_.parameters(), kLearningRate) {
    register_hook(model_, group, options.hook);
    model_.module()->draw_batch(group->rank(), options.batch);
  }

  void step() {
    if (options_.logical_ranks > 0) {
      model_.for_each_shard([this](int shard) {
        model_.module()->draw_batch(shard, options_.batch);
        model_.forward().backward();
      });
    } else {
      optimizer_.zero_grad();
      model_.forward().backward();
    }
    optimizer_.step();
  }

  Wrapped& model() { return model_; }

 private:
  const Options& options_;
  Wrapped model_;
  torch::optim::SGD optimizer_;
};

}  // namespace

Measurement measure_alone(const Options& options) {
  const std::shared_ptr<Model> model = make_model(options.model);
  model->draw_batch(0, options.batch);
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);
  Measurement times;
  while (!is_enough(times.synchronized, options.steps)) {
    time_block(
        [&] {
          optimizer.zero_grad();
          model->forward().backward();
          optimizer.step();
        },
        times.synchronized);
  }
  drop_warm_up(times.synchronized, options.steps);
  times.pss_mib = pss_mib();
  return times;
}

Measurement measure_ranks(const std::shared_ptr<unisono::ProcessGroup>& group,
                          const Options& options) {
  Training training(group, options);
  const Step step = [&] { training.step(); };
  const bool without = options.logical_ranks == 0;
  Measurement times;
  while (!is_enough(options.no_sync ? times.unsynchronized : times.synchronized, options.steps)) {
    if (!options.no_sync) {
      group->barrier();
      time_block(step, times.synchronized);
    }
    if (without) {
      group->barrier();
      const auto guard = training.model().no_sync();
      time_block(step, times.unsynchronized);
    }
  }
  times.pss_mib = pss_mib();
  group->all_reduce(unisono::as_buffer(std::span(&times.pss_mib, 1)));
  for (std::vector<double>* const part : {&times.synchronized, &times.unsynchronized}) {
    if (!part->empty()) {
      drop_warm_up(*part, options.steps);
      group->all_reduce(unisono::as_buffer(std::span(*part)), {.op = unisono::kMax});
    }
  }
  return times;
}

std::string train_and_hash(const std::shared_ptr<unisono::ProcessGroup>& group,
                           const Options& options) {
  Training training(group, options);
  for (int i = 0; i < options.steps; ++i) {
    training.step();
  }
  return sha256_of(training.model().parameters());
}

}  // namespace bench
