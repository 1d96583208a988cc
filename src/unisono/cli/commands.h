#pragma once

#include <span>

namespace unisono::cli {

struct CommandLine;

/// A command of the program `unisono`.
struct Command {
  const char* name;
  const char* help;  ///< One line.
  /// Returns the exit code.
  int (*run)(const CommandLine& line);
};

/// All of them, in the order of `unisono --help`.
[[nodiscard]] std::span<const Command> commands();

/// What another launcher wants of this machine.
int host_command();

int run_command(const CommandLine& line);
int launch_command(const CommandLine& line);
int bench_command(const CommandLine& line);
int backends_command(const CommandLine& line);
int alias_command(const CommandLine& line);
int checkpoint_command(const CommandLine& line);
int completion_command(const CommandLine& line);
int config_command(const CommandLine& line);
int data_command(const CommandLine& line);
int devices_command(const CommandLine& line);
int man_command(const CommandLine& line);
int plan_command(const CommandLine& line);
int secret_command(const CommandLine& line);
int store_command(const CommandLine& line);
int doctor_command(const CommandLine& line);

}  // namespace unisono::cli
