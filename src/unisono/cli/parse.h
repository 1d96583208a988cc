#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// Exit code after wrong options.
inline constexpr int kWrongUsage = 2;

/// What a command is called with.
struct CommandLine {
  int argc = 0;
  char** argv = nullptr;  ///< The command's name and what follows it.
  /// Where it is set it gets the command's options, and the command does nothing else.
  std::function<void(const CLI::App&)> describe = {};
};

/// "[unisono] error: ..." on stderr.
void print_error(std::string_view what);

/// Ends --help with lines that somebody may type, each a command of `unisono`.
void add_examples(CLI::App& app, std::initializer_list<std::string_view> lines);

/// Parses the command line into what was bound to `app`. Returns an exit code if the command is
/// over: help was printed, `app` was to be described only, or an option is wrong and that was said.
///
/// The help of a command with commands of its own ends with the first example of each.
[[nodiscard]] std::optional<int> parse(CLI::App& app, const CommandLine& line);

}  // namespace unisono::cli
