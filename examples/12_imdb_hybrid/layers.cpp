#include "layers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/balance.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/prediction.h"
#include "unisono/pipeline/simulate.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/measure_layers.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "hybrid_options.h"
#include "measure.h"
#include "tensors.h"
#include "transformer.h"

namespace imdb {
namespace {

constexpr int kTrials = 7;
constexpr int kSteps = 7;
constexpr double kBytesPerMiB = 1 << 20;

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

// On every rank what all had at most in the last step.
std::vector<double> memory_of_ranks(unisono::parallel::Pipeline& model,
                                    unisono::ProcessGroup& pipe) {
  std::vector<double> mib(static_cast<std::size_t>(pipe.world_size()), 0.0);
  mib[static_cast<std::size_t>(pipe.rank())] =
      static_cast<double>(model.last_step().peak_activation_bytes) / kBytesPerMiB;
  pipe.all_reduce(unisono::as_buffer(std::span(mib)));
  return mib;
}

}  // namespace

MeasuredLayers measure_layers(const HybridOptions& options,
                              const unisono::parallel::Mesh& mesh,
                              std::int64_t ntokens) {
  MeasuredLayers layers{.batch = random_batch(options, mesh, ntokens), .costs = {}};
  const Batch chunk{.tokens = layers.batch.tokens.chunk(options.chunks).front(),
                    .labels = layers.batch.labels.chunk(options.chunks).front()};
  mesh.world()->barrier();
  layers.costs = unisono::parallel::measure_layers(
      make_net(options, ntokens),
      {chunk.tokens},
      {.trials = kTrials,
       .loss = [&](const at::Tensor& scores) { return loss_of(scores, chunk.labels); }});
  take_mean(*mesh.world(), layers.costs.times);
  if (mesh.world()->rank() == 0) {
    write(options.layer_times, unisono::pipeline::to_csv(layers.costs));
  }
  return layers;
}

std::string compare_with_plan(const MeasuredLayers& layers,
                              unisono::parallel::Pipeline& model,
                              unisono::ProcessGroup& pipe) {
  const auto parts = unisono::pipeline::cut_evenly(static_cast<int>(layers.costs.times.size()),
                                                   model.schedule().n_stages());
  const unisono::pipeline::StepFigures planned = unisono::pipeline::predict_step(
      model.schedule(), layers.costs, parts, {.is_by_arrival = true});
  model.train();
  std::vector<unisono::pipeline::StepFigures> steps;
  for (int step = 0; step < kSteps; ++step) {
    model.zero_grad();
    model.train_step(layers.batch.tokens, layers.batch.labels, loss_of);
    const unisono::pipeline::Timeline timeline = model.timeline();
    steps.push_back({.step_ms = unisono::pipeline::step_time(timeline),
                     .bubble = unisono::pipeline::bubble(timeline),
                     .memory_mib = memory_of_ranks(model, pipe)});
  }
  model.zero_grad();
  std::ranges::sort(steps, {}, &unisono::pipeline::StepFigures::step_ms);
  return "a step of " + std::to_string(layers.batch.tokens.size(1)) +
         " tokens, planned by the layers, and the median of " + std::to_string(kSteps) + ":\n" +
         unisono::pipeline::compare(planned, steps[steps.size() / 2]);
}

}  // namespace imdb
