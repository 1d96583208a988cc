#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace unisono::launch {

/// The folder of the Python package whose `sitecustomize` makes backends' names mean Unisono, as
/// it lies beside a program `unisono` in `program_folder`: in an installed package, or in a build
/// tree; or else that of the package that `python` would import, which is asked: that takes it some
/// 20 ms, at most 10 s. Empty, `python` is none.
///
/// Throws Error(kNotFound) where there is no package.
[[nodiscard]] std::filesystem::path find_startup_folder(const std::filesystem::path& program_folder,
                                                        const std::string& python);

/// What a Python program needs in its environment for its backends' names to mean what `alias`
/// says, as in "gloo=unisono,nccl=unisono".
struct AliasVariables {
  std::string alias;           ///< UNISONO_BACKEND_ALIAS
  std::string startup_folder;  ///< Goes to the front of PYTHONPATH.
};

/// Those of this very program, or of the package of `python`.
///
/// Throws Error(kInvalidArgument) with what is wrong with `alias`, and as find_startup_folder().
[[nodiscard]] AliasVariables alias_variables(const std::string& alias, const std::string& python);

}  // namespace unisono::launch
