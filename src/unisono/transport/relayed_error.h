#pragma once

#include <string>
#include <string_view>

#include "unisono/base/error.h"

namespace unisono::transport {

/// What a rank says whose peer `name` told it why it gave up: "rank 2 (pid 5 on a) gave up: ...".
/// A peer that gave up because of a third rank is left out: the cause, and who first had it, is
/// said once, however many ranks pass it on.
[[nodiscard]] Error relayed(const std::string& name, const Error& reason);

/// An error of the group with the call that it ends, behind `prefix`: "[rank 0/2] barrier #1: ...".
/// What of that it begins with already is not said again.
[[nodiscard]] Error with_call(const std::string& prefix,
                              const std::string& call,
                              const Error& error);

/// The words of who first had the error that `text` passes on; `text` if it is nobody else's.
[[nodiscard]] std::string_view root_cause(std::string_view text);

/// That rank's name; `text` if it is nobody else's.
[[nodiscard]] std::string_view root_rank(std::string_view text);

}  // namespace unisono::transport
