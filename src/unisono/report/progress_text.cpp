#include "unisono/report/progress_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "unisono/base/text.h"

namespace unisono::report {
namespace {

constexpr std::chrono::seconds kWindow(30);
constexpr std::chrono::seconds kBetweenMarks(1);

}  // namespace

RateMeter::RateMeter(Time start) : marks_{{.time = start}}, last_{.time = start} {}

void RateMeter::note(Time now, std::int64_t n_steps, std::int64_t n_samples) {
  last_ = {.time = now, .n_steps = n_steps, .n_samples = n_samples};
  if (now - marks_.back().time >= kBetweenMarks) {
    marks_.push_back(last_);
  }
  // The oldest remaining mark is at least a window old.
  while (marks_.size() > 2 && now - marks_[1].time >= kWindow) {
    marks_.pop_front();
  }
}

RateMeter::Rates RateMeter::rates(Time now) const {
  const Mark& first = marks_.front();
  const double seconds = std::chrono::duration<double>(now - first.time).count();
  if (seconds <= 0) {
    return {};
  }
  return {.steps_per_second = static_cast<double>(last_.n_steps - first.n_steps) / seconds,
          .samples_per_second = static_cast<double>(last_.n_samples - first.n_samples) / seconds};
}

namespace {

constexpr std::size_t kWidestBar = 30;
constexpr std::size_t kNarrowestBar = 5;

std::size_t n_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

std::string first_characters(std::string_view text, std::size_t most) {
  std::size_t n_bytes = 0;
  for (std::size_t i = 0; i < most && n_bytes < text.size(); ++i) {
    n_bytes += std::max<std::size_t>(1, utf8_character_bytes(text.substr(n_bytes)));
  }
  return std::string(text.substr(0, n_bytes));
}

std::string number_text(double value) {
  return fmt::format("{:.4g}", value);
}

std::string rate_text(const ProgressState& state, double steps_per_second, double per_second) {
  const bool counts_samples = state.n_samples > 0;
  const double rate = counts_samples ? per_second : steps_per_second;
  constexpr double kWholeFrom = 100;
  return fmt::format("{} {}/s",
                     rate < kWholeFrom ? fmt::format("{:.3g}", rate) : fmt::format("{:.0f}", rate),
                     counts_samples ? printable(state.unit) : "steps");
}

// Returns the parts of a line after the step.
std::vector<std::string> details(const ProgressState& state) {
  std::vector<std::string> pieces;
  if (state.steps_per_second > 0) {
    pieces.push_back(rate_text(state, state.steps_per_second, state.samples_per_second));
    if (state.step < state.total) {
      const auto n_left = static_cast<double>(state.total - state.step);
      pieces.push_back(duration_text(n_left / state.steps_per_second) + " left");
    }
  }
  for (const NamedValue& value : state.values) {
    pieces.push_back(printable(value.name) + " " + number_text(value.value));
  }
  return pieces;
}

std::int64_t percent(const ProgressState& state) {
  return static_cast<std::int64_t>(100 * static_cast<double>(state.step) /
                                   static_cast<double>(state.total));
}

std::string bar(const ProgressState& state, std::size_t width, bool colours) {
  const double share =
      std::min(1.0, static_cast<double>(state.step) / static_cast<double>(state.total));
  const auto n_full = static_cast<std::size_t>(share * static_cast<double>(width));
  std::string text = colours ? "\033[32m" : "";
  for (std::size_t i = 0; i < width; ++i) {
    text += i == n_full && colours ? "\033[0m" : "";
    text += i < n_full ? "█" : "░";
  }
  return text + (n_full == width && colours ? "\033[0m" : "");
}

std::string joined(const std::vector<std::string>& pieces, std::string_view separator) {
  return fmt::format("{}", fmt::join(pieces, separator));
}

}  // namespace

std::string bar_text(const ProgressState& state, std::size_t n_columns, bool colours) {
  const std::string title = printable(state.title) + (state.title.empty() ? "" : "  ");
  std::vector<std::string> pieces{
      state.total > 0 ? fmt::format("{:3}% {}/{}", percent(state), state.step, state.total)
                      : fmt::format("step {}", state.step)};
  std::ranges::move(details(state), std::back_inserter(pieces));
  const auto n_taken = [&] { return n_characters(title) + n_characters(joined(pieces, "  ")) + 1; };
  while (state.total > 0 && pieces.size() > 1 && n_taken() + kNarrowestBar > n_columns) {
    pieces.pop_back();
  }
  const std::string rest = joined(pieces, "  ");
  if (state.total == 0 || n_taken() + kNarrowestBar > n_columns) {
    return first_characters(title + rest, n_columns);
  }
  return title + bar(state, std::min(kWidestBar, n_columns - n_taken()), colours) + " " + rest;
}

std::string line_text(const ProgressState& state) {
  std::vector<std::string> pieces{
      state.total > 0 ? fmt::format("step {} of {} ({}%)", state.step, state.total, percent(state))
                      : fmt::format("step {}", state.step)};
  std::ranges::move(details(state), std::back_inserter(pieces));
  return printable(state.title) + (state.title.empty() ? "" : ": ") + joined(pieces, ", ");
}

std::string end_text(const ProgressState& state) {
  std::vector<std::string> pieces{(state.total > 0
                                       ? fmt::format("{} of {} steps", state.step, state.total)
                                       : fmt::format("{} steps", state.step)) +
                                  " in " + duration_text(state.seconds)};
  if (state.seconds > 0 && state.n_steps > 0) {
    pieces.push_back(rate_text(state,
                               static_cast<double>(state.n_steps) / state.seconds,
                               static_cast<double>(state.n_samples) / state.seconds));
  }
  for (const NamedValue& value : state.values) {
    pieces.push_back(printable(value.name) + " " + number_text(value.value));
  }
  return printable(state.title) + (state.title.empty() ? "" : ": ") + joined(pieces, ", ");
}

std::string duration_text(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kMost = 1e15;  // Limit: whole seconds are meaningless beyond.
  if (seconds < kMinute) {
    return fmt::format("{:.1f} s", std::max(0.0, seconds));
  }
  const auto whole = static_cast<std::int64_t>(std::lround(std::min(seconds, kMost)));
  constexpr std::int64_t kSixty = 60;
  const std::int64_t hours = whole / (kSixty * kSixty);
  const std::int64_t minutes = whole / kSixty % kSixty;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % kSixty)
                   : fmt::format("{}:{:02}", minutes, whole % kSixty);
}

std::string printable(std::string_view text) {
  std::string result = as_utf8(text);
  const auto is_control = [](char byte) {
    constexpr unsigned char kSpace = 0x20;
    constexpr unsigned char kDelete = 0x7F;
    return static_cast<unsigned char>(byte) < kSpace || static_cast<unsigned char>(byte) == kDelete;
  };
  std::ranges::replace_if(result, is_control, '?');
  return result;
}

namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

}  // namespace

std::string json_line(const ProgressState& state, int rank, double unix_seconds) {
  Json line{{"time", unix_seconds}, {"rank", rank}};
  if (!state.title.empty()) {
    line["title"] = state.title;
  }
  line["step"] = state.step;
  if (state.total > 0) {
    line["total"] = state.total;
  }
  line["seconds"] = state.seconds;
  line["steps_per_second"] = state.steps_per_second;
  if (state.n_samples > 0) {
    line["unit"] = state.unit;
    line["samples"] = state.n_samples;
    line["samples_per_second"] = state.samples_per_second;
  }
  Json& values = line["values"] = Json::object();
  for (const NamedValue& value : state.values) {
    values[value.name] = number(value.value);
  }
  constexpr int kOneLine = -1;
  return line.dump(kOneLine, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace unisono::report
