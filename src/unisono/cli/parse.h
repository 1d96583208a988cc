#pragma once

#include <optional>
#include <string_view>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// Exit code after wrong options.
inline constexpr int kWrongUsage = 2;

/// "[unisono] error: ..." on stderr.
void print_error(std::string_view what);

/// Parses the command line into what was bound to `app`. Returns an exit code if the command is
/// over: help was printed, or an option is wrong and that was said.
[[nodiscard]] std::optional<int> parse(CLI::App& app, int argc, char** argv);

}  // namespace unisono::cli
