#include "unisono/report/rate_meter.h"

#include <chrono>
#include <cstdint>

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
  // The oldest that is left is at least a window ago.
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

}  // namespace unisono::report
