#include "step_report.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/process.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "options.h"
#include "transformer.h"

namespace imdb {
namespace {

constexpr int kLayerTrials = 7;
constexpr int kSteps = 7;
constexpr int kWholeBatchTrials = 3;
constexpr double kBytesPerMiB = 1 << 20;

torch::nn::Sequential make_net_of(const Options& options) {
  return make_net(options, static_cast<std::int64_t>(options.ntokens));
}

void take_mean(unisono::ProcessGroup& group, std::vector<unisono::pipeline::StageTimes>& times) {
  std::vector<double> numbers;
  for (const unisono::pipeline::StageTimes& layer : times) {
    numbers.insert(numbers.end(), {layer.forward, layer.backward_input, layer.backward_weight});
  }
  group.all_reduce(unisono::as_buffer(std::span(numbers)), {.op = unisono::kAvg});
  for (std::size_t layer = 0; layer < times.size(); ++layer) {
    times[layer] = {.forward = numbers[3 * layer],
                    .backward_input = numbers[3 * layer + 1],
                    .backward_weight = numbers[3 * layer + 2]};
  }
}

// The peak of the last step's activations on every rank of the pipeline.
std::vector<double> memory_of_ranks(unisono::parallel::Pipeline& model,
                                    unisono::ProcessGroup& pipe) {
  std::vector<double> mib(static_cast<std::size_t>(pipe.world_size()), 0.0);
  mib[static_cast<std::size_t>(pipe.rank())] =
      static_cast<double>(model.last_step().peak_activation_bytes) / kBytesPerMiB;
  pipe.all_reduce(unisono::as_buffer(std::span(mib)));
  return mib;
}

double whole_batch_ms(torch::nn::Sequential net, const unisono::BatchTensors& batch) {
  double best = std::numeric_limits<double>::infinity();
  for (int trial = 0; trial < kWholeBatchTrials; ++trial) {
    const auto start = std::chrono::steady_clock::now();
    loss_of(net->forward(batch.samples), batch.labels).backward();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
    net->zero_grad();
  }
  return best;
}

}  // namespace

unisono::pipeline::LayerCosts measure_layers(const Options& options,
                                             unisono::ProcessGroup& world,
                                             const unisono::BatchTensors& batch) {
  const at::Tensor tokens = batch.samples.chunk(options.chunks).front();
  const at::Tensor labels = batch.labels.chunk(options.chunks).front();
  world.barrier();
  unisono::pipeline::LayerCosts costs = unisono::parallel::measure_layers(
      make_net_of(options),
      {tokens},
      {.trials = kLayerTrials,
       .loss = [&](const at::Tensor& scores) { return loss_of(scores, labels); }});
  take_mean(world, costs.times);
  return costs;
}

std::string compare_with_plan(const unisono::pipeline::LayerCosts& costs,
                              const unisono::BatchTensors& batch,
                              unisono::parallel::Pipeline& model,
                              unisono::ProcessGroup& pipe) {
  const auto parts = unisono::pipeline::cut_evenly(static_cast<int>(costs.times.size()),
                                                   model.schedule().n_stages());
  const unisono::pipeline::StepFigures planned =
      unisono::pipeline::predict_step(model.schedule(), costs, parts, {.is_by_arrival = true});
  std::vector<unisono::pipeline::StepFigures> steps;
  for (int step = 0; step < kSteps; ++step) {
    model.zero_grad();
    model.train_step(batch.samples, batch.labels, loss_of);
    const unisono::pipeline::Timeline timeline = model.timeline();
    steps.push_back({.step_ms = unisono::pipeline::step_time(timeline),
                     .bubble = unisono::pipeline::bubble(timeline),
                     .memory_mib = memory_of_ranks(model, pipe)});
  }
  model.zero_grad();
  std::ranges::sort(steps, {}, &unisono::pipeline::StepFigures::step_ms);
  return "a step of " + std::to_string(batch.samples.size(1)) +
         " tokens, planned by the layers, and the median of " + std::to_string(kSteps) + ":\n" +
         unisono::pipeline::compare(planned, steps[steps.size() / 2]);
}

std::string describe_gain(const Options& options,
                          const unisono::BatchTensors& batch,
                          unisono::parallel::Pipeline& model,
                          unisono::ProcessGroup& pipe) {
  const unisono::pipeline::Timeline timeline = model.timeline();
  std::string text;
  if (pipe.rank() == 0) {
    // Pipelines on one node share its cores equally.
    const int n_pipelines = std::max(1, pipe.local_world_size() / pipe.world_size());
    text = unisono::pipeline::describe(
        unisono::pipeline::gain_of(
            model.schedule(),
            timeline,
            {.n_devices = std::max(1, unisono::available_cores() / n_pipelines),
             .whole_batch = whole_batch_ms(make_net_of(options), batch)}),
        "ms");
  }
  pipe.barrier();  // The other ranks leave the cores to rank 0 until its trials are done.
  return text;
}

}  // namespace imdb
