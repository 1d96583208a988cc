#include <fmt/format.h>

#include <optional>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/config.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/launch/program.h"
#include "unisono/launch/python_startup.h"

namespace unisono::cli {
namespace {

// One word of a shell's.
std::string quote(const std::string& text) {
  std::string quoted = "'";
  for (const char character : text) {
    quoted += character == '\'' ? std::string("'\\''") : std::string(1, character);
  }
  return quoted + "'";
}

}  // namespace

int alias_command(const CommandLine& line) {
  CLI::App app(
      "Prints what a shell has to set so that Python's torch.distributed takes Unisono for "
      "backends\n"
      "of other names, under any launcher",
      "unisono alias");
  std::string alias;
  app.add_option("NAMES", alias, "NAME=unisono,...")->required();
  add_examples(app,
               {"unisono alias gloo=unisono,nccl=unisono",
                "eval \"$(unisono alias gloo=unisono,nccl=unisono)\""});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const launch::AliasVariables variables =
      launch::alias_variables(alias, launch::python_of({}, process_environment()));
  fmt::print("export UNISONO_BACKEND_ALIAS={}\n", quote(variables.alias));
  fmt::print("export PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}}\n",
             quote(variables.startup_folder));
  return 0;
}

}  // namespace unisono::cli
