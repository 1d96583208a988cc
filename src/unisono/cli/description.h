#pragma once

#include <string>
#include <vector>

namespace unisono::cli {

/// What a word on the command line may be.
enum class ValueKind { kNothingKnown, kChoice, kFile, kFolder, kHost, kProgram };

/// The value of an option, or an operand, which is a word without an option.
struct Value {
  ValueKind kind = ValueKind::kFile;
  std::string name;  ///< As --help has it.
  /// With kChoice the words to choose from, which need not be all.
  std::vector<std::string> choices;
  std::string default_value;  ///< "" for none.
  std::string help;
  bool is_required = false;
};

struct OptionDescription {
  /// With their hyphens, a short one first. None of a hidden option.
  std::vector<std::string> spellings;
  /// Those that are understood, too: torchrun's with underscores, other names.
  std::vector<std::string> other_spellings;
  std::vector<Value> values;  ///< One, or none of a flag.
  std::string help;
  bool is_repeatable = false;
};

/// A command as --help knows it, and with it completion and the manual page.
struct CommandDescription {
  std::string name;  ///< "unisono store get"
  std::string help;  ///< In the list of commands.
  std::string text;  ///< At the beginning of its own help.
  std::vector<OptionDescription> options;
  std::vector<Value> operands;
  std::vector<CommandDescription> commands;
  std::vector<std::string> examples;

  /// Without what comes before: "get".
  [[nodiscard]] std::string short_name() const;
};

/// Lines of `unisono --help`.
[[nodiscard]] std::vector<std::string> program_examples();

/// Builds the options of every command, to describe them.
[[nodiscard]] CommandDescription describe_program();

}  // namespace unisono::cli
