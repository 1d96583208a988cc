#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/torch/optim/check_argument.h"
#include "unisono/torch/optim/schedule.h"

namespace unisono::optim {
namespace {

void check_schedules(const std::vector<Schedule>& schedules, const char* who) {
  check_argument(!schedules.empty(), who, "there must be one schedule at least");
  check_argument(
      std::ranges::all_of(schedules, [](const Schedule& schedule) { return schedule != nullptr; }),
      who,
      "a schedule is an empty function");
}

}  // namespace

Schedule sequential_lr(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones) {
  check_schedules(schedules, "sequential_lr");
  check_argument(milestones.size() + 1 == schedules.size(),
                 "sequential_lr",
                 "there are " + std::to_string(schedules.size()) + " schedules and " +
                     std::to_string(milestones.size()) +
                     " milestones; there must be one milestone less than schedules");
  for (std::size_t i = 1; i < milestones.size(); ++i) {
    check_argument(milestones[i - 1] <= milestones[i],
                   "sequential_lr",
                   "milestone " + std::to_string(milestones[i]) + " comes after " +
                       std::to_string(milestones[i - 1]) + "; the milestones must be in order");
  }
  return [schedules = std::move(schedules), milestones = std::move(milestones)](double base_lr,
                                                                                std::int64_t step) {
    const auto next = std::ranges::upper_bound(milestones, step);
    const std::int64_t begin = next == milestones.begin() ? 0 : *(next - 1);
    return schedules[static_cast<std::size_t>(next - milestones.begin())](base_lr, step - begin);
  };
}

Schedule chained_lr(std::vector<Schedule> schedules) {
  check_schedules(schedules, "chained_lr");
  return [schedules = std::move(schedules)](double base_lr, std::int64_t step) {
    for (const Schedule& schedule : schedules) {
      base_lr = schedule(base_lr, step);
    }
    return base_lr;
  };
}

}  // namespace unisono::optim
