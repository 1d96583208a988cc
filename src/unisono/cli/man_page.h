#pragma once

#include <string>

#include "unisono/cli/description.h"

namespace unisono::cli {

/// unisono.1 in roff, with the table of settings. The same bytes on every machine.
[[nodiscard]] std::string man_page(const CommandDescription& program);

}  // namespace unisono::cli
