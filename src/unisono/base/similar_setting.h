#pragma once

#include <string>
#include <string_view>

namespace unisono {

/// The setting that may be meant by an environment variable which is none: "UNISONO_LOG" for
/// "UNISONO_LGO"; "" where it is one, or like none.
[[nodiscard]] std::string similar_setting(std::string_view name);

}  // namespace unisono
