#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/base/release.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/launch/hosts/serve_uplink.h"
#include "unisono/launch/program.h"
#include "unisono/launch/run.h"

namespace unisono::cli {
namespace {

constexpr int kFailed = 1;

// A new command is one line here.
constexpr std::array kCommands{
    Command{"run", "Run a program as several ranks that train together", run_command},
    Command{"launch", "The same as torch.distributed.launch: with --local_rank", launch_command},
    Command{"bench", "Measure collective operations", bench_command},
    Command{"doctor", "Find out what is wrong with a machine or a job", doctor_command},
    Command{"checkpoint", "List, verify, export or compare checkpoints", checkpoint_command},
    Command{"data", "Measure how fast a loader brings training data", data_command},
    Command{"plan", "Print a batch script for a training on several nodes", plan_command},
    Command{"store", "Serve a key-value store, or look into one", store_command},
    Command{"backends", "Print which operations there are, by backend", backends_command},
    Command{"alias", "Print how to give other backends' names to Unisono in Python", alias_command},
    Command{"config", "Print the settings that the environment may have", config_command},
};

void print_help() {
  fmt::print("Trains one model on many processes as if they were one.\n\n");
  for (const Command& command : kCommands) {
    fmt::print("  unisono {:<12}{}\n", command.name, command.help);
  }
  fmt::print("\n`unisono COMMAND --help` says more; `unisono --version` says which version.\n");
}

int dispatch(std::span<char*> arguments) {
  const std::string_view name = arguments.size() > 1 ? arguments[1] : "";
  if (name == launch::kGuardianArgument) {
    return launch::run_guardian(arguments.subspan(2));
  }
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
  for (const Command& command : kCommands) {
    if (name == command.name) {
      return command.run(static_cast<int>(arguments.size()) - 1, &arguments[1]);
    }
  }
  print_error(
      fmt::format("{}; unisono --help lists the commands",
                  name.empty() ? "which command?" : fmt::format("there is no command {}", name)));
  return kWrongUsage;
}

// What was printed may still lie in the buffer.
void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw system_error("stdout can't be written to", errno);
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
