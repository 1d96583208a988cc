#include "unisono/pipeline/layer_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::pipeline {
namespace {

// Quotes a name that contains a separator, by RFC 4180.
std::string field_of(const std::string& name) {
  if (name.find_first_of(",\"\r\n") == std::string::npos) {
    return name;
  }
  std::string field = "\"";
  for (const char letter : name) {
    field += letter == '"' ? "\"\"" : std::string(1, letter);
  }
  return field + "\"";
}

void check_n_parts(int n_parts) {
  if (n_parts < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("balance: {} parts: at least 1 is needed", n_parts));
  }
}

void check_costs(const std::vector<double>& costs, int n_parts) {
  check_n_parts(n_parts);
  if (costs.size() < as_index(n_parts)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("balance: {} layers can't be cut into {} parts", costs.size(), n_parts));
  }
  for (std::size_t layer = 0; layer < costs.size(); ++layer) {
    if (!std::isfinite(costs[layer]) || costs[layer] < 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("balance: layer {} has cost {}: it must be a number, and not negative",
                      layer,
                      costs[layer]));
    }
  }
}

// A chunk's activations are freed while its gradients are computed, so the peak counts memory
// between actions.
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

std::string to_csv(const LayerCosts& layers) {
  std::string text = layers.names.empty() ? "" : "name,";
  text += "forward_ms,backward_ms,weight_ms";
  text += layers.activation_mib.empty() ? "" : ",activation_mib";
  text += layers.gradient_mib.empty() ? "\n" : ",gradient_mib\n";
  for (std::size_t layer = 0; layer < layers.times.size(); ++layer) {
    const StageTimes& times = layers.times[layer];
    text += layers.names.empty() ? "" : field_of(layers.names[layer]) + ",";
    text +=
        fmt::format("{:.4f},{:.4f},{:.4f}", times.forward, times.backward(), times.backward_weight);
    for (const std::vector<double>* sizes : {&layers.activation_mib, &layers.gradient_mib}) {
      text += sizes->empty() ? "" : fmt::format(",{:.6f}", (*sizes)[layer]);
    }
    text += "\n";
  }
  return text;
}

std::vector<LayerRange> cut_evenly(int n_layers, int n_parts) {
  check_n_parts(n_parts);
  if (n_layers < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("balance: {} layers: at least 1 is needed", n_layers));
  }
  const int n = std::min(n_layers, n_parts);
  std::vector<LayerRange> parts;
  for (int part = 0; part < n; ++part) {
    const int begin = parts.empty() ? 0 : parts.back().end;
    parts.push_back({.begin = begin, .end = begin + n_layers / n + (part < n_layers % n ? 1 : 0)});
  }
  return parts;
}

std::vector<LayerRange> cut_by_cost(const std::vector<double>& costs, int n_parts) {
  check_costs(costs, n_parts);
  const std::size_t n_layers = costs.size();
  // least[n] is the smallest possible largest sum when the first n layers are cut into the parts so
  // far. The last of these parts begins at begins[parts][n].
  std::vector<double> least(n_layers + 1, std::numeric_limits<double>::infinity());
  least[0] = 0;
  std::vector<std::vector<std::size_t>> begins;
  for (int n_done = 0; n_done < n_parts; ++n_done) {
    std::vector<double> next(n_layers + 1, std::numeric_limits<double>::infinity());
    std::vector<std::size_t>& begin_of = begins.emplace_back(n_layers + 1, 0);
    for (std::size_t end = 1; end <= n_layers; ++end) {
      double sum = 0;
      for (std::size_t begin = end; begin-- > 0;) {
        sum += costs[begin];
        const double largest = std::max(least[begin], sum);
        if (largest <= next[end]) {
          next[end] = largest;
          begin_of[end] = begin;
        }
      }
    }
    least = std::move(next);
  }
  std::vector<LayerRange> parts(as_index(n_parts));
  std::size_t end = n_layers;
  for (std::size_t part = parts.size(); part-- > 0;) {
    const std::size_t begin = begins[part][end];
    parts[part] = {.begin = static_cast<int>(begin), .end = static_cast<int>(end)};
    end = begin;
  }
  return parts;
}

std::vector<double> sums_of_parts(const std::vector<double>& costs,
                                  const std::vector<LayerRange>& parts) {
  std::vector<double> sums;
  for (const LayerRange& part : parts) {
    sums.push_back(std::accumulate(costs.begin() + part.begin, costs.begin() + part.end, 0.0));
  }
  return sums;
}

std::vector<StageTimes> times_of_parts(const std::vector<StageTimes>& layers,
                                       const std::vector<LayerRange>& parts) {
  std::vector<StageTimes> sums;
  for (const LayerRange& part : parts) {
    StageTimes& sum =
        sums.emplace_back(StageTimes{.forward = 0, .backward_input = 0, .backward_weight = 0});
    for (int layer = part.begin; layer < part.end; ++layer) {
      const StageTimes& times = layers[as_index(layer)];
      sum.forward += times.forward;
      sum.backward_input += times.backward_input;
      sum.backward_weight += times.backward_weight;
    }
  }
  return sums;
}

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

namespace {

// A smaller speed-up is within the noise of the clocks.
constexpr double kWorthIt = 1.05;
// The smallest share of a step, or of the work, that counts as a reason.
constexpr double kMuchBubble = 0.25;
constexpr double kMuchWaiting = 0.1;
constexpr double kMuchMore = 1.15;

std::map<Action, double> times_of(const Schedule& schedule, const Timeline& measured) {
  std::map<Action, double> times;
  std::size_t n_expected = 0;
  for (const std::vector<Action>& order : schedule.orders) {
    n_expected += order.size();
  }
  for (std::size_t rank = 0; rank < measured.ranks.size(); ++rank) {
    std::set<Action> expected;
    if (rank < schedule.orders.size()) {
      expected.insert(schedule.orders[rank].begin(), schedule.orders[rank].end());
    }
    for (const Span& span : measured.ranks[rank]) {
      if (!expected.contains(span.action)) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("gain: the schedule has no {} on rank {}, which was measured there",
                                describe(span.action),
                                rank));
      }
      times[span.action] = span.end - span.start;
    }
  }
  if (times.size() != n_expected || times.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "gain: {} of the schedule's {} actions were measured", times.size(), n_expected));
  }
  return times;
}

std::vector<StageCost> costs_of(const Schedule& schedule,
                                const std::map<Action, double>& times,
                                double serial) {
  std::vector<StageCost> costs;
  for (int stage = 0; stage < schedule.n_stages(); ++stage) {
    costs.push_back({.stage = stage,
                     .rank = schedule.rank_of_stage[as_index(stage)],
                     .forward = 0,
                     .backward = 0,
                     .share = 0});
  }
  for (const auto& [action, time] : times) {
    StageCost& cost = costs[as_index(action.stage)];
    (action.kind == ActionKind::kForward ? cost.forward : cost.backward) +=
        time / schedule.n_chunks;
    cost.share += serial > 0 ? time / serial : 0;
  }
  return costs;
}

// Uses mean times per stage, equal for all chunks, as plans do.
double planned_step(const Schedule& schedule, const std::map<Action, double>& times) {
  std::map<std::pair<int, ActionKind>, double> means;
  for (const auto& [action, time] : times) {
    means[{action.stage, action.kind}] += time / schedule.n_chunks;
  }
  return step_time(simulate(
      schedule, [&](const Action& action) { return means.at({action.stage, action.kind}); }));
}

// Returns the rank with the largest share of all computation, and that share.
std::pair<int, double> largest_share(const Gain& gain, int n_ranks) {
  std::vector<double> shares(as_index(n_ranks));
  for (const StageCost& cost : gain.stages) {
    shares[as_index(cost.rank)] += cost.share;
  }
  const auto largest = std::max_element(shares.begin(), shares.end());
  return {static_cast<int>(largest - shares.begin()), *largest};
}

std::vector<std::string> find_reasons(const Gain& gain,
                                      const Schedule& schedule,
                                      const Circumstances& circumstances) {
  const int n_ranks = schedule.n_ranks();
  std::vector<std::string> reasons;
  if (n_ranks == 1) {
    return {"There is one rank: no other rank computes at the same time."};
  }
  if (circumstances.n_devices < n_ranks) {
    reasons.push_back(fmt::format("{} ranks share {} core{} or GPUs: they take turns.",
                                  n_ranks,
                                  circumstances.n_devices,
                                  circumstances.n_devices == 1 ? "" : "s"));
  }
  if (schedule.n_chunks == 1) {
    reasons.emplace_back("With one chunk only one rank computes at a time: use several.");
  } else if (gain.ideal_bubble > kMuchBubble) {
    reasons.push_back(fmt::format(
        "Even without waiting for messages ranks have nothing to do for {:.0f} % of the step: more "
        "chunks, or another schedule, would fill it.",
        100 * gain.ideal_bubble));
  }
  const auto [rank, share] = largest_share(gain, n_ranks);
  if (share * n_ranks > kMuchMore) {
    reasons.push_back(fmt::format(
        "Rank {} has {:.0f} % of the work, where an equal part is {:.0f} %: cut the model by the "
        "times of its layers.",
        rank,
        100 * share,
        100.0 / n_ranks));
  }
  if (gain.step - gain.ideal > kMuchWaiting * gain.step) {
    reasons.push_back(
        fmt::format("{:.0f} % of the step is waiting for messages or for cores that others use.",
                    100 * (gain.step - gain.ideal) / gain.step));
  }
  if (gain.serial > kMuchMore * gain.alone) {
    reasons.push_back(fmt::format(
        "Chunks make computing itself {:.2f} times as long as the whole batch in one piece: fewer "
        "chunks, or a larger batch, cost less.",
        gain.serial / gain.alone));
  }
  return reasons;
}

}  // namespace

Gain gain_of(const Schedule& schedule,
             const Timeline& measured,
             const Circumstances& circumstances) {
  if (circumstances.n_devices < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("gain: {} devices: there is one at least", circumstances.n_devices));
  }
  const std::map<Action, double> times = times_of(schedule, measured);
  Gain gain;
  for (const auto& [action, time] : times) {
    gain.serial += time;
  }
  const Timeline ideal = simulate(schedule, [&](const Action& action) { return times.at(action); });
  gain.stages = costs_of(schedule, times, gain.serial);
  gain.step = step_time(measured);
  gain.alone = circumstances.whole_batch.value_or(gain.serial);
  // More ranks than devices are not faster than as many ranks as devices.
  gain.ideal = std::max(step_time(ideal), gain.serial / circumstances.n_devices);
  gain.planned = planned_step(schedule, times);
  gain.bubble = bubble(measured);
  gain.ideal_bubble = bubble(ideal);
  gain.reasons = find_reasons(gain, schedule, circumstances);
  return gain;
}

std::string describe(const Gain& gain, const std::string& unit) {
  std::string text = fmt::format("{:>5}  {:>4}  {:>10}  {:>11}  {:>6}\n",
                                 "stage",
                                 "rank",
                                 "forward " + unit,
                                 "backward " + unit,
                                 "work %");
  for (const StageCost& cost : gain.stages) {
    text += fmt::format("{:>5}  {:>4}  {:>10.3f}  {:>11.3f}  {:>6.1f}\n",
                        cost.stage,
                        cost.rank,
                        cost.forward,
                        cost.backward,
                        100 * cost.share);
  }
  text += fmt::format("bubble {:.1f} %, without waiting for messages {:.1f} %\n",
                      100 * gain.bubble,
                      100 * gain.ideal_bubble);
  text +=
      fmt::format("step {:.3f} {unit}; without a pipeline {:.3f} {unit}: {:.2f} times as fast\n",
                  gain.step,
                  gain.alone,
                  gain.factor(),
                  fmt::arg("unit", unit));
  text += fmt::format("planned by the stages' times {:.3f} {}: off by {:+.1f} %\n",
                      gain.planned,
                      unit,
                      100 * gain.off_plan());
  if (gain.factor() >= kWorthIt) {
    text += "Pipelining wins on this machine";
  } else if (gain.best_factor() >= kWorthIt) {
    text += "Pipelining does not win here, but can";
  } else {
    text += "Pipelining can't win here";
  }
  text += fmt::format("; with this cut and schedule it is at best {:.2f} times as fast.\n",
                      gain.best_factor());
  for (const std::string& reason : gain.reasons) {
    text += "- " + reason + "\n";
  }
  return text;
}

}  // namespace unisono::pipeline
