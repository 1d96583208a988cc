#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::cli {

/// Returns a suggestion for an unknown option as the end of an error message, "; did you mean
/// --master-addr?", or an empty text. `names` are the names of the options, with hyphens and
/// without leading dashes. An empty `prefix` means that the names are not options, for example
/// commands.
[[nodiscard]] std::string suggestion(std::string_view typed,
                                     std::span<const std::string> names,
                                     std::string_view prefix = "--");

/// Returns true if a text begins with a dash other than the hyphen, as word processors produce.
[[nodiscard]] bool starts_with_typographic_dash(std::string_view text);

}  // namespace unisono::cli

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// Returns the words of a command line in the spellings that CLI11 accepts, one for each of
/// `words`. Habits of argparse and mpirun are replaced: an unambiguous beginning of a long option,
/// `-r=3`, and `-np` for -n.
///
/// Words after a program's name or after "--", and words that are no options, do not change.
///
/// Throws Error(kInvalidArgument), with similar names, for an ambiguous beginning of an option and
/// for an unknown command.
[[nodiscard]] std::vector<std::string> respell(const CLI::App& app, std::span<char* const> words);

/// Returns the first long name of each option of `app`, without dashes.
[[nodiscard]] std::vector<std::string> option_names(const CLI::App& app);

}  // namespace unisono::cli

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// Exit code after wrong options.
inline constexpr int kWrongUsage = 2;

/// Arguments of a command.
struct CommandLine {
  int argc = 0;
  char** argv = nullptr;  ///< The command's name and the words after it.
  /// If set, the command only passes its options to this function.
  std::function<void(const CLI::App&)> describe = {};
};

/// Prints "[unisono] error: ..." to stderr.
void print_error(std::string_view what);

/// Ends the text of --help with examples, each a command line of `unisono`.
void add_examples(CLI::App& app, std::initializer_list<std::string_view> lines);

/// Parses the command line into the variables that `app` is bound to. Returns an exit code if the
/// command has ended: help was printed, `app` was only described, or an option was wrong and the
/// error was printed.
///
/// The help of a command with subcommands ends with the first example of each subcommand.
[[nodiscard]] std::optional<int> parse(CLI::App& app, const CommandLine& line);

}  // namespace unisono::cli
