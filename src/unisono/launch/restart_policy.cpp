#include "unisono/launch/restart_policy.h"

#include <algorithm>
#include <chrono>
#include <optional>

namespace unisono::launch {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kShortLife{10};
constexpr milliseconds kFirstDelay{100};
constexpr milliseconds kLongestDelay{10'000};

}  // namespace

std::optional<milliseconds> RestartPolicy::restart_after(const GenerationEnd& end) {
  if (!end.has_failed || n_used_ == max_restarts_) {
    return std::nullopt;
  }
  ++n_used_;
  if (n_used_ == 1 || end.lifetime >= kShortLife) {
    delay_ = milliseconds(0);
  } else {
    delay_ = std::clamp(2 * delay_, kFirstDelay, kLongestDelay);
  }
  return delay_;
}

}  // namespace unisono::launch
