#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <CLI/App.hpp>

#include "unisono/base/config.h"
#include "unisono/cli/commands.h"

namespace unisono::cli {
namespace {

void print_table() {
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
}

}  // namespace

void add_config_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("config", "Print the settings that the environment has");
  command->callback(print_table);
}

}  // namespace unisono::cli
