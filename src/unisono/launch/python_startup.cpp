#include "unisono/launch/python_startup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "unisono/base/backend_alias.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/launch/ask_python.h"

namespace unisono::launch {

namespace {

constexpr std::chrono::seconds kAnswerTimeout{10};

// Without importing it. A script does not look into the folder where it is started.
constexpr char kWhereIsThePackage[] =
    "import importlib.util, sys\n"
    "sys.path = [folder for folder in sys.path if folder]\n"
    "spec = importlib.util.find_spec('unisono')\n"
    "if spec and spec.origin: print(spec.submodule_search_locations[0], end='')\n";

bool is_startup_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder / "sitecustomize.py", ignored);
}

std::optional<std::filesystem::path> find_beside(const std::filesystem::path& program_folder) {
  const std::filesystem::path parent = program_folder.parent_path();
  const std::array places{parent / "_startup", parent / "python" / "unisono" / "_startup"};
  const auto* const found = std::find_if(places.begin(), places.end(), is_startup_folder);
  return found == places.end() ? std::nullopt : std::optional(*found);
}

std::optional<std::filesystem::path> find_in_package_of(const std::string& python) {
  if (python.empty()) {
    return std::nullopt;
  }
  const std::optional<std::string> package =
      ask_python(python, kWhereIsThePackage, Deadline::after(kAnswerTimeout));
  const auto folder = std::filesystem::path(package.value_or("")) / "_startup";
  return package && is_startup_folder(folder) ? std::optional(folder) : std::nullopt;
}

}  // namespace

std::filesystem::path find_startup_folder(const std::filesystem::path& program_folder,
                                          const std::string& python) {
  if (const auto folder = find_beside(program_folder)) {
    return *folder;
  }
  if (const auto folder = find_in_package_of(python)) {
    return *folder;
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("names of backends: the unisono in {} has no Python package beside it, "
                          "and {}; install the package for the Python that runs the program",
                          program_folder.string(),
                          python.empty() ? "there is no python3 in PATH"
                                         : python + " finds no module unisono"));
}

AliasVariables alias_variables(const std::string& alias, const std::string& python) {
  if (const auto problem = find_alias_problem(alias)) {
    throw Error(ErrorCode::kInvalidArgument, "names of backends: " + *problem);
  }
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return {.alias = alias,
          .startup_folder = find_startup_folder(program.parent_path(), python).string()};
}

}  // namespace unisono::launch
