#pragma once

#include <optional>
#include <string>

#include "unisono/base/deadline.h"

namespace unisono::launch {

/// The last line that `python -c CODE` writes to stdout, without an end of line behind it; its
/// stderr goes nowhere. Nothing where it can't be started, writes nothing, or takes longer: then it
/// is killed.
[[nodiscard]] std::optional<std::string> ask_python(const std::string& python,
                                                    const std::string& code,
                                                    Deadline deadline);

}  // namespace unisono::launch
