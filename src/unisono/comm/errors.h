#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"

namespace unisono {

/// The Error(kInvalidArgument) of a call that a process group refuses because of its arguments. No
/// data was sent, and the group remains usable.
class RefusedCall : public Error {
 public:
  /// `call` is the rank and the operation: "[rank 0/2] all_reduce".
  RefusedCall(const std::string& call, const std::string& problem)
      : Error(ErrorCode::kInvalidArgument, call + ": " + problem),
        problem_begin_(call.size() + 2) {}

  /// Returns the problem without the call, for a layer above whose call has another name.
  [[nodiscard]] std::string problem() const { return std::string(what()).substr(problem_begin_); }

 private:
  std::size_t problem_begin_;
};

/// The Error(kTimeout) of a process group's operation, with the late ranks.
class TimedOut : public Error {
 public:
  /// `error` supplies code and message.
  TimedOut(const Error& error, std::vector<int> late_ranks)
      : Error(error), late_ranks_(std::move(late_ranks)) {}

  /// Returns the ranks of the group, in order, for which this rank waited when the timeout ended
  /// its wait, here or on another rank. For monitored_barrier() these are all ranks that had not
  /// arrived; for other operations the ranks that delayed this rank, which may wait for others
  /// themselves. Empty if unknown, for example after a wait of less than 0.2 s that another rank's
  /// timeout ended.
  [[nodiscard]] const std::vector<int>& late_ranks() const noexcept { return late_ranks_; }

 private:
  std::vector<int> late_ranks_;
};

}  // namespace unisono
