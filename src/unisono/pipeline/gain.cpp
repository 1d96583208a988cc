#include "unisono/pipeline/gain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/simulate.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {
namespace {

// Below it nobody would notice, and clocks would not agree.
constexpr double kWorthIt = 1.05;
// Shares of a step, or of the work, that a reason is at least about.
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

// Every chunk of a stage the same, as plans have it.
double planned_step(const Schedule& schedule, const std::map<Action, double>& times) {
  std::map<std::pair<int, ActionKind>, double> means;
  for (const auto& [action, time] : times) {
    means[{action.stage, action.kind}] += time / schedule.n_chunks;
  }
  return step_time(simulate(
      schedule, [&](const Action& action) { return means.at({action.stage, action.kind}); }));
}

// Of all computation, what the rank with the most of it has.
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
    return {"There is one rank: nobody computes beside it."};
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
  // Ranks that take turns are no faster than as many as there are devices.
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
