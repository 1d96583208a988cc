#pragma once

#include <string>

#include "unisono/engine/capabilities.h"

namespace unisono::test {

/// The backend that the suites are run for: that of worlds which name none.
[[nodiscard]] std::string tested_backend();

/// What it can do: what it lacks, tests leave out.
[[nodiscard]] engine::Capabilities capabilities();

}  // namespace unisono::test
