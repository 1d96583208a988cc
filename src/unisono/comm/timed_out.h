#pragma once

#include <utility>
#include <vector>

#include "unisono/base/error.h"

namespace unisono {

/// The Error(kTimeout) of a process group's operation, with who was late.
class TimedOut : public Error {
 public:
  TimedOut(const Error& error, std::vector<int> late_ranks)
      : Error(error), late_ranks_(std::move(late_ranks)) {}

  /// The ranks of the group, in order, that this one waited for when it gave up, on its own or
  /// because another rank did. For monitored_barrier() all that had not come; for other operations
  /// those that held this rank up, which may wait for others themselves. Empty where that is not
  /// known, as after a wait of less than 0.2 s that another rank's timeout ended.
  [[nodiscard]] const std::vector<int>& late_ranks() const noexcept { return late_ranks_; }

 private:
  std::vector<int> late_ranks_;
};

}  // namespace unisono
