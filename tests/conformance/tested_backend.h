#pragma once

#include <string>

#include "unisono/engine/backends.h"

namespace unisono::test {

/// Returns the backend under test, which worlds without an explicit backend use.
[[nodiscard]] std::string tested_backend();

/// Returns the capabilities of the backend under test. Tests skip unsupported features.
[[nodiscard]] engine::Capabilities capabilities();

}  // namespace unisono::test
