#pragma once

#include <string>

#include "unisono/cli/description.h"

namespace unisono::cli {

/// Functions for bash 4.4 or newer; they use bash-completion for the program behind `unisono run`
/// where it is there.
[[nodiscard]] std::string bash_completion(const CommandDescription& program);

/// A function of zsh's, for its fpath or to be sourced after compinit.
[[nodiscard]] std::string zsh_completion(const CommandDescription& program);

}  // namespace unisono::cli
