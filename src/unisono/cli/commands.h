#pragma once

#include <span>
#include <string>
#include <vector>

namespace unisono::cli {

struct CommandLine;

/// A command of the program `unisono`.
struct Command {
  const char* name;
  const char* help;  ///< Description of one line.
  /// Returns the exit code.
  int (*run)(const CommandLine& line);
};

/// Returns all commands, in the order of `unisono --help`.
[[nodiscard]] std::span<const Command> commands();

/// Runs the launcher that another launcher has started on this machine. Returns the exit code.
int host_command();

/// The commands of the table. Each parses its command line and returns the exit code.
int run_command(const CommandLine& line);
int launch_command(const CommandLine& line);
int bench_command(const CommandLine& line);
int backends_command(const CommandLine& line);
int alias_command(const CommandLine& line);
int checkpoint_command(const CommandLine& line);
int completion_command(const CommandLine& line);
int config_command(const CommandLine& line);
int devices_command(const CommandLine& line);
int man_command(const CommandLine& line);
int plan_command(const CommandLine& line);
int secret_command(const CommandLine& line);
int store_command(const CommandLine& line);
int doctor_command(const CommandLine& line);

/// Kind of a word on the command line.
enum class ValueKind { kNothingKnown, kChoice, kFile, kFolder, kHost, kProgram };

/// Value of an option, or an operand (a word without an option).
struct Value {
  ValueKind kind = ValueKind::kFile;
  std::string name;  ///< Name in the text of --help.
  /// For kChoice: words to choose from; other words may be valid.
  std::vector<std::string> choices;
  std::string default_value;  ///< Empty: no default.
  std::string help;
  bool is_required = false;
};

/// An option of a command.
struct OptionDescription {
  /// Spellings with hyphens, a short spelling first; empty for a hidden option.
  std::vector<std::string> spellings;
  /// Further accepted spellings: torchrun's with underscores, other names.
  std::vector<std::string> other_spellings;
  std::vector<Value> values;  ///< One value; empty for a flag.
  std::string help;
  bool is_repeatable = false;
};

/// Description of a command, from which completion and the manual page are generated. Agrees with
/// --help.
struct CommandDescription {
  std::string name;  ///< "unisono store get"
  std::string help;  ///< Text in the list of commands.
  std::string text;  ///< Text at the beginning of the command's help.
  std::vector<OptionDescription> options;
  std::vector<Value> operands;
  std::vector<CommandDescription> commands;
  std::vector<std::string> examples;

  /// Returns the last word of the name: "get".
  [[nodiscard]] std::string short_name() const;
};

/// Returns the example lines of `unisono --help`.
[[nodiscard]] std::vector<std::string> program_examples();

/// Describes all commands, by building their options.
[[nodiscard]] CommandDescription describe_program();

}  // namespace unisono::cli
