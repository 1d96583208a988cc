#include "unisono/pipeline/known_schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/text.h"

namespace unisono::pipeline {
namespace {

using Idle = std::optional<IdleTime>;

double hops(const Setting& setting) {
  return setting.n_ranks - 1;
}

Idle of_whole_backwards(const Setting& setting, const StageTimes& times) {
  return IdleTime{hops(setting) * times.sum()};
}

Idle of_interleaved(const Setting& setting, const StageTimes& times) {
  return setting.n_chunks % setting.n_ranks == 0 ? of_whole_backwards(setting, times)
                                                 : std::nullopt;
}

// The first term is the paper's. If weight gradients take longer than the gaps that they fill, a
// chunk still has to pass the slower of the two other ways.
Idle of_zero_bubble_h1(const Setting& setting, const StageTimes& times) {
  if (setting.n_chunks < setting.n_ranks) {
    return std::nullopt;
  }
  return IdleTime{hops(setting) *
                  std::max({times.forward + times.backward_input - times.backward_weight,
                            times.forward,
                            times.backward_input})};
}

bool is_near(double a, double b) {
  constexpr double kRounding = 1e-9;
  return std::abs(a - b) <= kRounding * std::max(a, b);
}

// The formula holds for actions of equal time and enough chunks to fill the pipeline.
Idle of_v(const Setting& setting, const StageTimes& times, double n_actions, bool is_upper_bound) {
  if (setting.n_chunks < 2 * setting.n_ranks || !is_near(times.forward, times.backward_input) ||
      !is_near(times.forward, times.backward_weight)) {
    return std::nullopt;
  }
  return IdleTime{hops(setting) * n_actions * times.forward, is_upper_bound};
}

Idle of_dual_pipe_v(const Setting& setting, const StageTimes& times) {
  if (setting.n_chunks < 2 * setting.n_ranks || times.backward_input > times.forward ||
      times.backward_weight > times.backward_input) {
    return std::nullopt;
  }
  return IdleTime{hops(setting) * (times.forward + times.backward_input - times.backward_weight)};
}

// Returns the name in small letters, without the prefix "Schedule" of PyTorch's classes.
std::string plain_name(std::string_view name) {
  constexpr std::string_view kOfClasses = "schedule";
  std::string plain(name);
  std::ranges::transform(plain, plain.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  return plain.starts_with(kOfClasses) ? plain.substr(kOfClasses.size()) : plain;
}

// Schedules that only PyTorch has, and the nearest schedule of this table.
constexpr std::array kMissing{std::pair("interleavedzerobubble", "zb_h1, with one stage per rank"),
                              std::pair("loopedbfs", "fill_drain, with one stage per rank")};

template <VMemory memory>
Schedule make_v(const Setting& setting) {
  return v_schedule(setting.n_ranks, setting.n_chunks, memory);
}

// Table of the schedules; a new schedule is a row.
constexpr std::array kSchedules{
    KnownSchedule{"fill_drain",
                  "gpipe",
                  "all forwards, then all backwards (GPipe)",
                  1,
                  [](const Setting& s) { return fill_drain(s.n_ranks, s.n_chunks); },
                  of_whole_backwards},
    KnownSchedule{"1f1b",
                  "1f1b",
                  "a forward, a backward",
                  1,
                  [](const Setting& s) { return one_f_one_b(s.n_ranks, s.n_chunks); },
                  of_whole_backwards},
    KnownSchedule{
        "interleaved_1f1b",
        "interleaved1f1b",
        "the same with several stages per rank",
        0,
        [](const Setting& s) { return interleaved(s.n_ranks, s.n_chunks, s.stages_per_rank); },
        of_interleaved},
    KnownSchedule{"zb_h1",
                  nullptr,
                  "1f1b with weight gradients in its gaps",
                  1,
                  [](const Setting& s) { return zero_bubble_h1(s.n_ranks, s.n_chunks); },
                  of_zero_bubble_h1},
    KnownSchedule{"v_min",
                  nullptr,
                  "a third of 1f1b's memory",
                  2,
                  make_v<VMemory::kMin>,
                  [](const Setting& s, const StageTimes& t) { return of_v(s, t, 4, true); }},
    KnownSchedule{"v_half",
                  nullptr,
                  "half of 1f1b's memory",
                  2,
                  make_v<VMemory::kHalf>,
                  [](const Setting& s, const StageTimes& t) { return of_v(s, t, 3, true); }},
    KnownSchedule{"v_zb",
                  "zbvzerobubble",
                  "1f1b's memory, hardly any bubble",
                  2,
                  make_v<VMemory::kFull>,
                  [](const Setting& s, const StageTimes& t) { return of_v(s, t, 1, false); }},
    KnownSchedule{"dual_pipe_v",
                  "dualpipev",
                  "forwards along with backwards of another stage",
                  2,
                  [](const Setting& s) { return dual_pipe_v(s.n_ranks, s.n_chunks); },
                  of_dual_pipe_v},
};

}  // namespace

std::span<const KnownSchedule> known_schedules() {
  return kSchedules;
}

const KnownSchedule& find_schedule(std::string_view name) {
  const std::string wanted = plain_name(name);
  std::string names;
  for (const KnownSchedule& schedule : kSchedules) {
    if (name == schedule.name ||
        (schedule.torchs_name != nullptr && wanted == schedule.torchs_name)) {
      return schedule;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", schedule.name);
  }
  std::string nearest;
  for (const auto& [torchs_name, other] : kMissing) {
    if (wanted == torchs_name) {
      nearest = fmt::format("; the nearest one is {}", other);
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("pipeline: there is no schedule \"{}\"{}; there are {}",
                          escape_text(name),
                          nearest,
                          names));
}

}  // namespace unisono::pipeline
