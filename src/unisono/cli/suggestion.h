#pragma once

#include <span>
#include <string>
#include <string_view>

namespace unisono::cli {

/// What somebody who typed an option that is not there may have meant, as the end of an error
/// message: "; did you mean --master-addr?", or nothing. `names` are those of the options, without
/// dashes before them and with hyphens in them. With an empty `prefix` they are names of something
/// else, such as commands.
[[nodiscard]] std::string suggestion(std::string_view typed,
                                     std::span<const std::string> names,
                                     std::string_view prefix = "--");

/// Whether a text begins with a dash that is no hyphen, such as word processors make of one.
[[nodiscard]] bool starts_with_typographic_dash(std::string_view text);

}  // namespace unisono::cli
