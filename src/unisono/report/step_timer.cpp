#include "unisono/report/step_timer.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

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

}  // namespace unisono
