#pragma once

#include <cstddef>
#include <string>

#include "unisono/base/error.h"

namespace unisono {

/// The Error(kInvalidArgument) of a call that a process group refuses for its arguments. Nothing
/// was sent, and the group goes on.
class RefusedCall : public Error {
 public:
  /// `call` says who calls what: "[rank 0/2] all_reduce".
  RefusedCall(const std::string& call, const std::string& problem)
      : Error(ErrorCode::kInvalidArgument, call + ": " + problem),
        problem_begin_(call.size() + 2) {}

  /// What is wrong, without the call: for a layer above, whose call has another name.
  [[nodiscard]] std::string problem() const { return std::string(what()).substr(problem_begin_); }

 private:
  std::size_t problem_begin_;
};

}  // namespace unisono
