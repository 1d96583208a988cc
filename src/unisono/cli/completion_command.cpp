#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/completion_scripts.h"
#include "unisono/cli/description.h"
#include "unisono/cli/parse.h"

namespace unisono::cli {
namespace {

struct Shell {
  const char* name;
  std::string (*complete)(const CommandDescription& program);
};

constexpr std::array kShells{Shell{"bash", bash_completion}, Shell{"zsh", zsh_completion}};

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Shell& shell : kShells) {
    result.emplace_back(shell.name);
  }
  return result;
}

}  // namespace

int completion_command(const CommandLine& line) {
  CLI::App app(
      "Prints what lets a shell complete this program's commands, options and their values",
      "unisono completion");
  std::string shell;
  app.add_option("SHELL", shell, "Which shell")
      ->type_name(fmt::format("{}", fmt::join(names(), "|")))
      ->required();
  add_examples(app, {"source <(unisono completion bash)", "source <(unisono completion zsh)"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  for (const Shell& known : kShells) {
    if (shell == known.name) {
      fmt::print("{}", known.complete(describe_program()));
      return 0;
    }
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "completion: there is no shell {}; there are {}", shell, fmt::join(names(), ", ")));
}

}  // namespace unisono::cli
