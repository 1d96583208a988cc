#include "unisono/launch/python_startup.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string>
#include <system_error>

#include "unisono/base/backend_alias.h"
#include "unisono/base/error.h"

namespace unisono::launch {

std::filesystem::path find_startup_folder(const std::filesystem::path& program_folder) {
  const std::filesystem::path parent = program_folder.parent_path();
  const std::array places{parent / "_startup", parent / "python" / "unisono" / "_startup"};
  for (const std::filesystem::path& place : places) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(place / "sitecustomize.py", ignored)) {
      return place;
    }
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("names of backends: the unisono in {} has no Python package beside it; "
                          "use the one that pip installs, `python -m unisono run`, say",
                          program_folder.string()));
}

AliasVariables alias_variables(const std::string& alias) {
  if (const auto problem = find_alias_problem(alias)) {
    throw Error(ErrorCode::kInvalidArgument, "names of backends: " + *problem);
  }
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return {.alias = alias, .startup_folder = find_startup_folder(program.parent_path()).string()};
}

}  // namespace unisono::launch
