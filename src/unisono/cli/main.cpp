#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/launch/hosts/run_on_hosts.h"
#include "unisono/launch/program.h"
#include "unisono/launch/run.h"

namespace unisono::cli {
namespace {

constexpr int kFailed = 1;

void print_help() {
  fmt::print("Trains one model on many processes as if they were one.\n\n");
  for (const Command& command : commands()) {
    fmt::print("  unisono {:<12}{}\n", command.name, command.help);
  }
  fmt::print(
      "\n`unisono COMMAND --help` describes a command; `unisono --version` prints the version.\n");
  fmt::print("\nExamples:\n  {}\n", fmt::join(program_examples(), "\n  "));
}

int dispatch(std::span<char*> arguments) {
  const std::string_view name = arguments.size() > 1 ? arguments[1] : "";
  if (name == launch::hosts::kHostArgument) {
    return host_command();
  }
  if (name == "--help" || name == "-h") {
    print_help();
    return 0;
  }
  if (name == "--version") {
    fmt::print("unisono {}\n", release());
    return 0;
  }
  for (const Command& command : commands()) {
    if (name == command.name) {
      return command.run({.argc = static_cast<int>(arguments.size()) - 1, .argv = &arguments[1]});
    }
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
  }
  print_error(fmt::format(
      "{}; unisono --help lists the commands",
      name.empty() ? "no command was given"
                   : fmt::format("there is no command {}{}", name, suggestion(name, names, ""))));
  return kWrongUsage;
}

// Printed text may still be in the buffer.
void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw system_error("can't write to stdout", errno);
  }
}

int run_main(std::span<char*> arguments) {
  try {
    const int exit_code = dispatch(arguments);
    flush_stdout();
    return exit_code;
  } catch (const launch::ProgramError& error) {
    print_error(error.what());
    return error.exit_code();
  } catch (const Error& error) {
    print_error(error.what());
    return error.code() == ErrorCode::kInvalidArgument ? kWrongUsage : kFailed;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace unisono::cli

int main(int argc, char** argv) {
  return unisono::cli::run_main({argv, static_cast<std::size_t>(argc)});
}
