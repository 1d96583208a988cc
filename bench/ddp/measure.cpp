#include "measure.h"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/optim/sgd.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/nn/data_parallel.h"
#include "unisono/torch/optim/zero_redundancy_optimizer.h"

#include "hooks.h"
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

// The first step of a block is not counted because it includes the after-effects of the previous
// block.
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

// Training with plain LibTorch on batches first .. first + n - 1.
class PlainTraining {
 public:
  PlainTraining(const Options& options, int first, int n)
      : options_(options),
        first_(first),
        n_(n),
        model_(make_model(options.model)),
        optimizer_(model_->parameters(), kLearningRate) {}

  void step() {
    optimizer_.zero_grad();
    for (int i = 0; i < n_; ++i) {
      model_->use_batch(first_ + i, options_.batch);
      const torch::Tensor loss = model_->forward();
      (n_ == 1 ? loss : loss / n_).backward();
    }
    optimizer_.step();
  }

  [[nodiscard]] std::vector<torch::Tensor> parameters() const { return model_->parameters(); }

 private:
  const Options& options_;
  int first_;
  int n_;
  std::shared_ptr<Model> model_;
  torch::optim::SGD optimizer_;
};

// Training with one thread and one batch for each replica of the model.
class ThreadTraining {
 public:
  explicit ThreadTraining(const Options& options)
      : model_(make_model(options.model),
               [&options] { return make_model(options.model); },
               {.n_replicas = options.replicas}),
        optimizer_(model_.parameters(), kLearningRate) {
    model_.module()->use_joined_batches(options.replicas, options.batch);
  }

  void step() {
    const Batch& batch = model_.module()->batch();
    optimizer_.zero_grad();
    model_.forward(batch.input, batch.labels).mean().backward();
    optimizer_.step();
  }

  [[nodiscard]] std::vector<torch::Tensor> parameters() const { return model_.parameters(); }

 private:
  unisono::nn::DataParallel<std::shared_ptr<Model>> model_;
  torch::optim::SGD optimizer_;
};

// Training of a model on this rank.
class Training {
 public:
  Training(const std::shared_ptr<unisono::ProcessGroup>& group, const Options& options)
      : options_(options),
        model_(make_model(options.model), group, {.logical_ranks = options.logical_ranks}),
        optimizer_(make_optimizer(group)) {
    register_hook(model_, group, options.hook);
    model_.module()->use_batch(group->rank(), options.batch);
  }

  void step() {
    if (options_.logical_ranks > 0) {
      model_.for_each_shard([this](int shard) {
        model_.module()->use_batch(shard, options_.batch);
        model_.forward().backward();
      });
    } else {
      optimizer_->zero_grad();
      model_.forward().backward();
    }
    optimizer_->step();
  }

  Wrapped& model() { return model_; }

  [[nodiscard]] std::vector<torch::Tensor> parameters() const { return model_.parameters(); }

  // With rate 0 steps have the same cost but do not change the parameters.
  void set_learning_rate(double rate) { optimizer_->param_groups().front().options().set_lr(rate); }

 private:
  std::unique_ptr<torch::optim::Optimizer> make_optimizer(
      const std::shared_ptr<unisono::ProcessGroup>& group) {
    const torch::optim::SGDOptions rate(kLearningRate);
    if (options_.zero == "no") {
      return std::make_unique<torch::optim::SGD>(model_.parameters(), rate);
    }
    auto optimizer = std::make_unique<unisono::optim::ZeroRedundancyOptimizer<torch::optim::SGD>>(
        group, model_.parameters(), rate);
    if (options_.zero == "overlap") {
      optimizer->overlap_with(model_);
    }
    return optimizer;
  }

  const Options& options_;
  Wrapped model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

template <class Kind>
Measurement measure_steps(Kind& training, const Options& options) {
  Measurement times;
  while (!is_enough(times.synchronized, options.steps)) {
    time_block([&] { training.step(); }, times.synchronized);
  }
  drop_warm_up(times.synchronized, options.steps);
  times.n_parameters = static_cast<int>(training.parameters().size());
  if (options.is_held) {
    std::puts("trained");
    std::fflush(stdout);
    (void)std::getchar();
  }
  times.memory = memory_of_process();
  return times;
}

template <class Kind>
std::string hash_after_steps(Kind& training, const Options& options) {
  for (int i = 0; i < options.steps; ++i) {
    training.step();
  }
  return sha256_of(training.parameters());
}

// Uses the same batches as this rank's steps.
PlainTraining plain_beside(Wrapped& model, int rank, const Options& options) {
  if (options.logical_ranks == 0) {
    return {options, rank, 1};
  }
  const std::vector<int> shards = model.shards();
  return {options, shards.front(), static_cast<int>(shards.size())};
}

}  // namespace

Measurement measure_alone(const Options& options) {
  if (options.replicas > 0) {
    ThreadTraining training(options);
    return measure_steps(training, options);
  }
  PlainTraining training(options, 0, options.accumulate);
  return measure_steps(training, options);
}

std::string train_alone_and_hash(const Options& options) {
  if (options.replicas > 0) {
    ThreadTraining training(options);
    return hash_after_steps(training, options);
  }
  PlainTraining training(options, 0, options.accumulate);
  return hash_after_steps(training, options);
}

Measurement measure_ranks(const std::shared_ptr<unisono::ProcessGroup>& group,
                          const Options& options) {
  Training training(group, options);
  std::optional<PlainTraining> plain;
  if (options.beside_plain) {
    plain.emplace(plain_beside(training.model(), group->rank(), options));
  }
  const Step step = [&] { training.step(); };
  const bool without = options.logical_ranks == 0 && !plain && options.zero == "no";
  Measurement times;
  while (!is_enough(options.no_sync ? times.unsynchronized : times.synchronized, options.steps)) {
    if (!options.no_sync) {
      group->barrier();
      time_block(step, times.synchronized);
    }
    if (times.memory.pss_mib == 0) {
      // Measured as in training: steps without synchronization have additional gradients.
      times.memory = memory_of_process();
    }
    if (without) {
      group->barrier();
      // The ranks' gradients differ, but their parameters must not.
      training.set_learning_rate(0);
      {
        const auto guard = training.model().no_sync();
        time_block(step, times.unsynchronized);
      }
      training.set_learning_rate(kLearningRate);
    }
    if (plain) {
      group->barrier();
      time_block([&] { plain->step(); }, times.plain);
    }
  }
  times.n_parameters = static_cast<int>(training.parameters().size());
  for (double* const mib : {&times.memory.pss_mib, &times.memory.without_files_mib}) {
    group->all_reduce(unisono::as_buffer(std::span(mib, 1)));
  }
  for (std::vector<double>* const part :
       {&times.synchronized, &times.unsynchronized, &times.plain}) {
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
  return hash_after_steps(training, options);
}

}  // namespace bench
