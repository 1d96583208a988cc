#pragma once

namespace unisono::cli {

/// A command of the program `unisono`.
struct Command {
  const char* name;
  const char* help;  ///< One line.
  /// Gets the command's name and what follows it; returns the exit code.
  int (*run)(int argc, char** argv);
};

/// What another launcher wants of this machine.
int host_command();

int run_command(int argc, char** argv);
int launch_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int backends_command(int argc, char** argv);
int alias_command(int argc, char** argv);
int checkpoint_command(int argc, char** argv);
int config_command(int argc, char** argv);
int data_command(int argc, char** argv);
int plan_command(int argc, char** argv);
int store_command(int argc, char** argv);
int doctor_command(int argc, char** argv);

}  // namespace unisono::cli
