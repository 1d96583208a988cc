#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"

namespace unisono::launch {

/// Returns the last line that `python -c CODE` writes to stdout, without its line end; stderr is
/// discarded. Returns std::nullopt if the interpreter cannot be started, writes no text, or takes
/// longer than the deadline allows. The process is killed in any case before the function returns.
[[nodiscard]] std::optional<std::string> ask_python(const std::string& python,
                                                    const std::string& code,
                                                    Deadline deadline);

/// Returns the folder with the `sitecustomize` that maps backend names to Unisono. The folder is
/// part of the Python package. The search begins beside a program `unisono` in `program_folder`
/// (installed package or build tree), and continues in the package that `python` would import. The
/// second step runs `python`, which takes about 20 ms, 10 s at most; an empty `python` skips the
/// step.
///
/// Throws Error(kNotFound) if there is no package.
[[nodiscard]] std::filesystem::path find_startup_folder(const std::filesystem::path& program_folder,
                                                        const std::string& python);

/// Environment variables by which a Python program maps backend names to Unisono, as `alias`
/// describes: "gloo=unisono,nccl=unisono".
struct AliasVariables {
  std::string alias;           ///< UNISONO_BACKEND_ALIAS
  std::string startup_folder;  ///< Put in front of PYTHONPATH.
};

/// Returns the variables for the package of this program, or for the package of `python`.
///
/// Throws Error(kInvalidArgument) for an invalid `alias`, and the errors of find_startup_folder().
[[nodiscard]] AliasVariables alias_variables(const std::string& alias, const std::string& python);

}  // namespace unisono::launch
