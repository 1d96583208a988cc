#pragma once

#include <span>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so.
class App;
}  // namespace CLI

namespace unisono::cli {

/// The words of a command line in the spellings that CLI11 takes, one for each of `words`. Habits
/// of argparse and mpirun are replaced: a beginning of one long option only, `-r=3`, and `-np` for
/// -n.
///
/// Words behind a program's name, or behind "--", and words that are no option stay as they are.
///
/// Throws Error(kInvalidArgument), with names that may be meant, for a beginning of several options
/// and for a command that `app` does not have.
[[nodiscard]] std::vector<std::string> respell(const CLI::App& app, std::span<char* const> words);

/// The first long name of each option of `app`, without dashes.
[[nodiscard]] std::vector<std::string> option_names(const CLI::App& app);

}  // namespace unisono::cli
