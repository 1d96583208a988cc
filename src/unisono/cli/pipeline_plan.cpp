#include "unisono/cli/pipeline_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/pipeline/balance.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/render.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/simulate.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::cli {
namespace {

using pipeline::LayerRange;
using pipeline::StageTimes;

std::vector<LayerRange> cut(const pipeline::LayerCosts& layers, Balance balance, int n_stages) {
  const int n_layers = static_cast<int>(layers.times.size());
  if (n_layers < n_stages) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("plan: {} layers can't be cut into {} stages", n_layers, n_stages));
  }
  switch (balance) {
    case Balance::kCount:
      return pipeline::cut_evenly(n_layers, n_stages);
    case Balance::kMemory:
      if (layers.activation_mib.empty()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "plan: to balance memory the file of layers needs a column activation_mib");
      }
      return pipeline::cut_by_cost(layers.activation_mib, n_stages);
    case Balance::kTime:
      break;
  }
  std::vector<double> times;
  for (const StageTimes& layer : layers.times) {
    times.push_back(layer.sum());
  }
  return pipeline::cut_by_cost(times, n_stages);
}

// A rank's stages take equal parts of its time.
StageTimes share_of(const StageTimes& times, int n_stages) {
  return {.forward = times.forward / n_stages,
          .backward_input = times.backward_input / n_stages,
          .backward_weight = times.backward_weight / n_stages};
}

// What all chunks take in all stages, one after the other.
double serial_ms(const PipelinePlan& plan) {
  double sum = 0;
  for (const StageTimes& stage : plan.stages) {
    sum += stage.sum() * plan.schedule.n_chunks;
  }
  return sum;
}

// The formula's bubble in percent, where all ranks compute for the same time.
std::string formula_percent(const PipelinePlan& plan) {
  if (!plan.formula) {
    return "-";
  }
  const double busy = serial_ms(plan) / plan.schedule.n_ranks();
  return fmt::format("{}{:.1f}",
                     plan.formula->is_upper_bound ? "<=" : "",
                     100 * plan.formula->time / (plan.formula->time + busy));
}

std::string join_stages(const PipelinePlan& plan, int rank) {
  std::vector<std::string> stages;
  for (int stage = 0; stage < plan.schedule.n_stages(); ++stage) {
    if (plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)] == rank) {
      stages.push_back(std::to_string(stage));
    }
  }
  return fmt::format("{}", fmt::join(stages, ","));
}

std::string join_layers(const PipelinePlan& plan, int rank) {
  std::vector<std::string> layers;
  for (std::size_t stage = 0; stage < plan.parts.size(); ++stage) {
    if (plan.schedule.rank_of_stage[stage] == rank) {
      const LayerRange& part = plan.parts[stage];
      layers.push_back(part.count() == 1 ? std::to_string(part.begin)
                                         : fmt::format("{}-{}", part.begin, part.end - 1));
    }
  }
  return fmt::format("{}", fmt::join(layers, ","));
}

// Activations are those of a chunk in a rank's whole share of the model, so that schedules compare.
double largest_activations(const PipelinePlan& plan) {
  double largest = 0;
  for (int rank = 0; rank < plan.schedule.n_ranks(); ++rank) {
    largest = std::max(
        largest,
        pipeline::peak_activations(plan.timeline, rank) / pipeline::stages_of(plan.schedule, rank));
  }
  return largest;
}

double largest_mib(const PipelinePlan& plan) {
  double largest = 0;
  for (int rank = 0; rank < plan.schedule.n_ranks(); ++rank) {
    largest =
        std::max(largest, pipeline::peak_activations(plan.timeline, rank, plan.activation_mib));
  }
  return largest;
}

}  // namespace

PipelinePlan make_pipeline_plan(const PipelineWish& wish,
                                pipeline::Schedule schedule,
                                const std::string& name) {
  PipelinePlan plan{.name = name,
                    .schedule = std::move(schedule),
                    .parts = {},
                    .stages = {},
                    .activation_mib = {},
                    .timeline = {},
                    .formula = {}};
  const int n_stages = plan.schedule.n_stages();
  if (wish.layers) {
    plan.parts = cut(*wish.layers, wish.balance, n_stages);
    plan.stages = pipeline::times_of_parts(wish.layers->times, plan.parts);
    if (!wish.layers->activation_mib.empty()) {
      plan.activation_mib = pipeline::sums_of_parts(wish.layers->activation_mib, plan.parts);
    }
  } else {
    for (const int rank : plan.schedule.rank_of_stage) {
      plan.stages.push_back(share_of(wish.rank_times, pipeline::stages_of(plan.schedule, rank)));
    }
  }
  plan.timeline =
      pipeline::simulate(plan.schedule,
                         pipeline::time_of(plan.stages),
                         {.transfer = wish.transfer_ms, .is_by_arrival = wish.is_by_arrival});
  return plan;
}

PipelinePlan make_pipeline_plan(const PipelineWish& wish, const pipeline::KnownSchedule& known) {
  const pipeline::Setting setting{
      .n_ranks = wish.n_ranks,
      .n_chunks = wish.n_chunks,
      .stages_per_rank = known.stages_per_rank > 0 ? known.stages_per_rank : wish.stages_per_rank};
  PipelinePlan plan = make_pipeline_plan(wish, known.make(setting), known.name);
  // Formulas are of stages that are alike, and of messages that take no time.
  if (!wish.layers && wish.transfer_ms == 0) {
    plan.formula = known.idle_time(setting, plan.stages.front());
  }
  return plan;
}

std::string describe(const PipelinePlan& plan) {
  const double step = pipeline::step_time(plan.timeline);
  const double serial = serial_ms(plan);
  std::string text = pipeline::render_text(plan.timeline);
  text += fmt::format("\n{}: {} ranks, {} stages, {} chunks\n",
                      plan.name,
                      plan.schedule.n_ranks(),
                      plan.schedule.n_stages(),
                      plan.schedule.n_chunks);
  text +=
      fmt::format("step {:.3f} ms; one rank after the other takes {:.3f} ms, {:.2f} times that\n",
                  step,
                  serial,
                  step > 0 ? serial / step : 1);
  text += fmt::format("bubble {:.1f} %, by the formula {} %\n\n",
                      100 * pipeline::bubble(plan.timeline),
                      formula_percent(plan));
  text += fmt::format("{:>4}  {:>8}", "rank", "stages");
  text += plan.parts.empty() ? "" : fmt::format("  {:>14}", "layers");
  text += fmt::format("  {:>10}  {:>8}  {:>11}", "busy ms", "bubble %", "activations");
  text += plan.activation_mib.empty() ? "\n" : fmt::format("  {:>10}\n", "MiB");
  for (int rank = 0; rank < plan.schedule.n_ranks(); ++rank) {
    text += fmt::format("{:>4}  {:>8}", rank, join_stages(plan, rank));
    text += plan.parts.empty() ? "" : fmt::format("  {:>14}", join_layers(plan, rank));
    text += fmt::format("  {:>10.3f}  {:>8.1f}  {:>11.0f}",
                        pipeline::busy_time(plan.timeline, rank),
                        100 * pipeline::bubble(plan.timeline, rank),
                        pipeline::peak_activations(plan.timeline, rank));
    text += plan.activation_mib.empty()
                ? "\n"
                : fmt::format("  {:>10.1f}\n",
                              pipeline::peak_activations(plan.timeline, rank, plan.activation_mib));
  }
  return text;
}

std::string compare(const std::vector<PipelinePlan>& plans) {
  const bool has_mib = !plans.empty() && !plans.front().activation_mib.empty();
  std::string text = fmt::format("{:<16}  {:>6}  {:>10}  {:>8}  {:>9}  {:>11}",
                                 "schedule",
                                 "stages",
                                 "step ms",
                                 "bubble %",
                                 "formula %",
                                 "activations");
  text += has_mib ? fmt::format("  {:>10}\n", "MiB") : "\n";
  for (const PipelinePlan& plan : plans) {
    text += fmt::format("{:<16}  {:>6}  {:>10.3f}  {:>8.1f}  {:>9}  {:>11.1f}",
                        plan.name,
                        plan.schedule.n_stages(),
                        pipeline::step_time(plan.timeline),
                        100 * pipeline::bubble(plan.timeline),
                        formula_percent(plan),
                        largest_activations(plan));
    text += has_mib ? fmt::format("  {:>10.1f}\n", largest_mib(plan)) : "\n";
  }
  return text +
         "\nactivations: what a rank holds at most, of a chunk in all of the rank's stages\n";
}

}  // namespace unisono::cli
