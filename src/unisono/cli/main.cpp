#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/cli/commands.h"
#include "unisono/launch/program.h"
#include "unisono/launch/run.h"

namespace {

using unisono::Error;
using unisono::ErrorCode;

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

void print_error(std::string_view what) {
  fmt::print(stderr, "[unisono] error: {}\n", what);
}

int run_command_line(int argc, char** argv) {
  int exit_code = 0;
  CLI::App app("Unisono trains one model on many processes as if they were one.", "unisono");
  app.set_version_flag("--version", "unisono " UNISONO_VERSION);
  app.require_subcommand(1);
  unisono::cli::add_run_command(app, exit_code);
  unisono::cli::add_config_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return app.exit(error);
    }
    print_error(std::string(error.what()) + "; see unisono --help");
    return kWrongUsage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
    if (argc > 1 && std::string_view(argv[1]) == unisono::launch::kGuardianArgument) {
      return unisono::launch::run_guardian(arguments.subspan(2));
    }
    return run_command_line(argc, argv);
  } catch (const unisono::launch::ProgramError& error) {
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
