#include <fmt/format.h>

#include <optional>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/config.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"

namespace unisono::cli {

int config_command(const CommandLine& line) {
  CLI::App app("Prints the settings that the environment may have", "unisono config");
  add_examples(app, {"unisono config", "unisono config | grep --after-context 1 TIMEOUT"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const Environment environment = process_environment();
  for (const ConfigRow& row : config_table()) {
    const bool is_set = environment(row.name).has_value();
    const std::string default_value = *row.default_value == '\0' ? "none" : row.default_value;
    fmt::print("{} ({}, default {}{})\n    {}\n",
               row.name,
               row.type,
               default_value,
               is_set ? "; set in this environment" : "",
               row.help);
  }
  return 0;
}

}  // namespace unisono::cli
