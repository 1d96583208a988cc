#include <fmt/format.h>

#include <optional>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/cli/commands.h"
#include "unisono/cli/description.h"
#include "unisono/cli/man_page.h"
#include "unisono/cli/parse.h"

namespace unisono::cli {

int man_command(const CommandLine& line) {
  CLI::App app("Prints the help of all commands as a manual page, for man", "unisono man");
  add_examples(app, {"unisono man | man --local-file -", "unisono man > unisono.1"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  fmt::print("{}", man_page(describe_program()));
  return 0;
}

}  // namespace unisono::cli
