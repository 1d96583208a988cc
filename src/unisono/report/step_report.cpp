#include "unisono/report/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono {
namespace {

double seconds(StepTimer::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void StepTimer::begin(Time now) {
  begin_ = begin_.value_or(now);
}

void StepTimer::end_step(Time now, std::int64_t n_bytes) {
  last_ = {.step = seconds(now - begin_.value_or(now)),
           .forward = seconds(forward_),
           .backward = seconds(backward_),
           .exposed = seconds(exposed_)};
  if (kept_.size() < kMostKept) {
    kept_.push_back(last_);
  } else {
    kept_[static_cast<std::size_t>(n_steps_) % kMostKept] = last_;
  }
  ++n_steps_;
  n_bytes_ = n_bytes;
  drop_step(now);
}

void StepTimer::drop_step(Time now) {
  begin_ = now;
  forward_ = {};
  backward_ = {};
  exposed_ = {};
}

std::vector<StepTimes> StepTimer::last_steps() const {
  std::vector<StepTimes> steps = kept_;
  if (kept_.size() == kMostKept) {
    const auto oldest = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(n_steps_) % kMostKept);
    std::ranges::rotate(steps, steps.begin() + oldest);
  }
  return steps;
}

namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kPercent = 100;

// Smallest difference between the ranks' waiting times, as a share of a step, that makes a rank
// count as the slowest.
constexpr double kNoticeable = 0.02;

double median(std::vector<double> values) {
  const std::size_t n = values.size();
  std::ranges::sort(values);
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

template <class Steps, class Value>
double median_of(const Steps& steps, const Value& value) {
  std::vector<double> values;
  for (const auto& step : steps) {
    values.push_back(value(step));
  }
  return median(std::move(values));
}

double other_time(const StepTimes& times) {
  return std::max(0.0, times.step - times.forward - times.backward - times.exposed);
}

std::vector<double> least_exposed(const std::vector<std::vector<StepTimes>>& ranks) {
  std::vector<double> least(ranks.front().size(), std::numeric_limits<double>::infinity());
  for (const std::vector<StepTimes>& steps : ranks) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      least[i] = std::min(least[i], steps[i].exposed);
    }
  }
  return least;
}

RankStepReport report_of(const std::vector<StepTimes>& steps,
                         const std::vector<double>& least,
                         std::int64_t n_bytes) {
  std::vector<double> waiting;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    waiting.push_back(steps[i].exposed - least[i]);
  }
  return {.step = median_of(steps, [](const StepTimes& times) { return times.step; }),
          .forward = median_of(steps, [](const StepTimes& times) { return times.forward; }),
          .backward = median_of(steps, [](const StepTimes& times) { return times.backward; }),
          .communication = median(least),
          .waiting = median(std::move(waiting)),
          .other = median_of(steps, other_time),
          .n_bytes = n_bytes};
}

double longest_wait(const StepReport& report) {
  return std::ranges::max(report.ranks, {}, &RankStepReport::waiting).waiting;
}

std::optional<int> find_slowest(const StepReport& report) {
  const auto least = std::ranges::min_element(report.ranks, {}, &RankStepReport::waiting);
  const bool is_noticed = longest_wait(report) - least->waiting > kNoticeable * least->step;
  return is_noticed ? std::optional(static_cast<int>(least - report.ranks.begin())) : std::nullopt;
}

// A part of a step that a rank computes without the others.
struct Part {
  const char* name;
  double RankStepReport::* time;
};

constexpr Part kParts[] = {{"forward", &RankStepReport::forward},
                           {"backward", &RankStepReport::backward},
                           {"the rest (data, loss, optimizer)", &RankStepReport::other}};

double median_of_others(const StepReport& report, int rank, const Part& part) {
  std::vector<double> values;
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    if (i != static_cast<std::size_t>(rank)) {
      values.push_back(report.ranks[i].*part.time);
    }
  }
  return median(std::move(values));
}

std::string describe_slowest(const StepReport& report) {
  if (!report.slowest) {
    return report.ranks.size() > 1 ? "no rank keeps the others waiting" : "";
  }
  const RankStepReport& slowest = report.ranks[static_cast<std::size_t>(*report.slowest)];
  const Part* most = nullptr;
  double most_seconds = 0;
  for (const Part& part : kParts) {
    const double seconds = slowest.*part.time - median_of_others(report, *report.slowest, part);
    if (seconds > most_seconds) {
      most = &part;
      most_seconds = seconds;
    }
  }
  const double wait = longest_wait(report);
  std::string text =
      fmt::format("rank {} is the slowest: others wait up to {:.2f} ms ({:.0f}%) of a step for it",
                  *report.slowest,
                  kMilliseconds * wait,
                  kPercent * wait / slowest.step);
  if (most != nullptr) {
    text += fmt::format("; {} takes it {:.2f} ms, and others {:.2f} ms",
                        most->name,
                        kMilliseconds * (slowest.*most->time),
                        kMilliseconds * median_of_others(report, *report.slowest, *most));
  }
  return text;
}

constexpr const char* kNoSteps = "no step with communication has been made";

// Data that each rank sends: numbers of one type.
struct Message {
  double n_steps = 0;
  double n_bytes = 0;
  StepTimes steps[StepTimer::kMostKept] = {};
};

static_assert(std::is_trivially_copyable_v<Message> && sizeof(StepTimes) == 4 * sizeof(double) &&
              sizeof(Message) == (2 + 4 * StepTimer::kMostKept) * sizeof(double));

Buffer as_numbers(std::span<Message> messages) {
  return {.data = messages.data(),
          .count = static_cast<std::int64_t>(messages.size_bytes() / sizeof(double)),
          .dtype = DType::kFloat64};
}

}  // namespace

StepReport make_step_report(const std::vector<std::vector<StepTimes>>& ranks,
                            const std::vector<std::int64_t>& n_bytes) {
  StepReport report;
  const auto n_steps_of = [](const std::vector<StepTimes>& steps) { return steps.size(); };
  report.n_steps = ranks.empty() ? 0 : n_steps_of(std::ranges::min(ranks, {}, n_steps_of));
  if (report.n_steps == 0) {
    return report;
  }
  std::vector<std::vector<StepTimes>> last;
  for (const std::vector<StepTimes>& steps : ranks) {
    last.emplace_back(steps.end() - static_cast<std::ptrdiff_t>(report.n_steps), steps.end());
  }
  const std::vector<double> least = least_exposed(last);
  for (std::size_t i = 0; i < last.size(); ++i) {
    report.ranks.push_back(report_of(last[i], least, n_bytes[i]));
  }
  report.slowest = find_slowest(report);
  return report;
}

StepReport gather_step_report(ProcessGroup& group,
                              const StepTimer& timer,
                              std::optional<std::chrono::milliseconds> timeout) {
  std::vector<Message> own(1);
  const std::vector<StepTimes> steps = timer.last_steps();
  own[0].n_steps = static_cast<double>(steps.size());
  own[0].n_bytes = static_cast<double>(timer.n_bytes());
  std::ranges::copy(steps, std::begin(own[0].steps));
  std::vector<Message> all(static_cast<std::size_t>(group.world_size()));
  group.all_gather(
      as_numbers(own), as_numbers(all), {.timeout = timeout, .label = "times of steps"});
  std::vector<std::vector<StepTimes>> ranks;
  std::vector<std::int64_t> n_bytes;
  for (const Message& message : all) {
    const auto n_steps = static_cast<std::size_t>(message.n_steps);
    ranks.emplace_back(std::begin(message.steps), std::begin(message.steps) + n_steps);
    n_bytes.push_back(static_cast<std::int64_t>(message.n_bytes));
  }
  return make_step_report(ranks, n_bytes);
}

std::string StepReport::table() const {
  if (ranks.empty()) {
    return std::string(kNoSteps) + "\n";
  }
  constexpr double kMebibyte = 1 << 20;
  std::string text = fmt::format("medians of {} step{}, in ms\n", n_steps, n_steps == 1 ? "" : "s");
  constexpr const char* kRow = "{:>5} {:>9} {:>9} {:>9} {:>13} {:>9} {:>9} {:>9}\n";
  text += fmt::format(
      kRow, "rank", "step", "forward", "backward", "communication", "waiting", "other", "MiB");
  const auto ms = [](double seconds) { return fmt::format("{:.2f}", kMilliseconds * seconds); };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankStepReport& rank = ranks[i];
    text += fmt::format(kRow,
                        i,
                        ms(rank.step),
                        ms(rank.forward),
                        ms(rank.backward),
                        ms(rank.communication),
                        ms(rank.waiting),
                        ms(rank.other),
                        fmt::format("{:.1f}", static_cast<double>(rank.n_bytes) / kMebibyte));
  }
  const std::string slowest_text = describe_slowest(*this);
  return text + slowest_text + (slowest_text.empty() ? "" : "\n");
}

std::string StepReport::line() const {
  if (ranks.empty()) {
    return kNoSteps;
  }
  const RankStepReport& rank = ranks[static_cast<std::size_t>(slowest.value_or(0))];
  const auto share = [&](double seconds) { return kPercent * seconds / rank.step; };
  const std::string text = fmt::format(
      "step {:.2f} ms: forward {:.0f}%, backward {:.0f}%, communication {:.0f}%, other {:.0f}%",
      kMilliseconds * rank.step,
      share(rank.forward),
      share(rank.backward),
      share(rank.communication),
      share(rank.other));
  const std::string slowest_text = describe_slowest(*this);
  return text + (slowest_text.empty() ? "" : "; ") + slowest_text;
}

}  // namespace unisono
