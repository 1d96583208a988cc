#include "unisono/pipeline/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/balance.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/simulate.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {
namespace {

// While a chunk's gradients come, its activations go: what is there before and after counts.
double peak_memory(const std::vector<Span>& spans,
                   const std::vector<double>& activations,
                   const std::vector<double>& gradients) {
  double present = 0;
  double peak = 0;
  std::set<int> stages_with_gradients;
  for (const Span& span : spans) {
    const int change = change_of_activations(span.action.kind);
    if (!activations.empty()) {
      present += change * activations[as_index(span.action.stage)];
    }
    if (change < 0 && !gradients.empty() &&
        stages_with_gradients.insert(span.action.stage).second) {
      present += gradients[as_index(span.action.stage)];
    }
    peak = std::max(peak, present);
  }
  return peak;
}

std::string row(const std::string& what, double planned, double measured) {
  return fmt::format(
      "{:<12}  {:>10.3f}  {:>10.3f}  {:>14}\n",
      what,
      planned,
      measured,
      planned > 0 ? fmt::format("{:+.1f} %", 100 * (measured / planned - 1)) : std::string("-"));
}

}  // namespace

StepFigures predict_step(const Schedule& schedule,
                         const LayerCosts& layers,
                         const std::vector<LayerRange>& parts,
                         const SimulationOptions& options) {
  const auto sizes_of_parts = [&](const std::vector<double>& sizes) {
    return sizes.empty() ? sizes : sums_of_parts(sizes, parts);
  };
  const Timeline timeline =
      simulate(schedule, time_of(times_of_parts(layers.times, parts)), options);
  StepFigures figures{.step_ms = step_time(timeline), .bubble = bubble(timeline)};
  for (const std::vector<Span>& spans : timeline.ranks) {
    figures.memory_mib.push_back(peak_memory(
        spans, sizes_of_parts(layers.activation_mib), sizes_of_parts(layers.gradient_mib)));
  }
  return figures;
}

std::string compare(const StepFigures& planned, const StepFigures& measured) {
  std::string text =
      fmt::format("{:<12}  {:>10}  {:>10}  {:>14}\n", "", "planned", "measured", "off by");
  text += row("step ms", planned.step_ms, measured.step_ms);
  text += fmt::format("{:<12}  {:>10.1f}  {:>10.1f}  {:>14}\n",
                      "bubble %",
                      100 * planned.bubble,
                      100 * measured.bubble,
                      fmt::format("{:+.1f} points", 100 * (measured.bubble - planned.bubble)));
  for (std::size_t rank = 0; rank < planned.memory_mib.size(); ++rank) {
    text += row(
        fmt::format("rank {} MiB", rank), planned.memory_mib[rank], measured.memory_mib.at(rank));
  }
  return text;
}

}  // namespace unisono::pipeline
