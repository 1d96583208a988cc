#include "unisono/cli/commands.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/cli/parse.h"

namespace unisono::cli {
namespace {

// Table of the commands; a new command is a row.
constexpr std::array kCommands{
    Command{"run", "Run a program as several ranks that train together", run_command},
    Command{"launch", "The same as torch.distributed.launch: with --local_rank", launch_command},
    Command{"bench", "Measure collective operations", bench_command},
    Command{"doctor", "Find problems of a machine or a job", doctor_command},
    Command{"devices", "List the GPUs that this process may use", devices_command},
    Command{"checkpoint", "List, verify, export or compare checkpoints", checkpoint_command},
    Command{"plan", "Plan a training: a batch script, a pipeline", plan_command},
    Command{
        "secret", "Write the secret by which ranks of several nodes authenticate", secret_command},
    Command{"store", "Serve a key-value store, or query one", store_command},
    Command{"backends", "Print the supported operations, by backend", backends_command},
    Command{
        "alias", "Print how to use Unisono under other backends' names in Python", alias_command},
    Command{"config", "Print the environment variables that configure Unisono", config_command},
    Command{"completion", "Print a completion script for a shell", completion_command},
    Command{"man", "Print all of this help as a manual page", man_command},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

// Parses "N|auto|cpu"; a choice in capitals stands for any word and is left out.
std::vector<std::string> find_choices(const std::string& type_name) {
  std::vector<std::string> choices = split(type_name, '|');
  std::erase_if(choices, [](const std::string& choice) {
    return choice.front() >= 'A' && choice.front() <= 'Z';
  });
  return choices;
}

// Derives the kind from the name of the type: CLI11's own, or a name given to the option.
ValueKind kind_of(std::string_view type_name) {
  constexpr std::array kKinds{std::pair("TEXT", ValueKind::kFile),
                              std::pair("FILE", ValueKind::kFile),
                              std::pair("DIR", ValueKind::kFolder),
                              std::pair("HOST", ValueKind::kHost)};
  for (const auto& [name, kind] : kKinds) {
    if (type_name == name) {
      return kind;
    }
  }
  return type_name.find('|') == std::string_view::npos ? ValueKind::kNothingKnown
                                                       : ValueKind::kChoice;
}

Value describe_value(const CLI::Option& option) {
  // A range follows the colon: "INT:INT in [0 - 65535]".
  const std::string checked = option.get_type_name();
  Value value{.kind = kind_of(checked),
              .name = checked.substr(0, checked.find(":INT in")),
              .choices = {},
              .default_value = option.get_default_str(),
              .help = option.get_description(),
              .is_required = option.get_required()};
  value.name = value.name.substr(0, value.name.find(":FLOAT in"));
  if (value.kind == ValueKind::kChoice) {
    value.choices = find_choices(checked);
  }
  return value;
}

OptionDescription describe_option(const CLI::Option& option) {
  OptionDescription description;
  for (const std::string& name : option.get_snames()) {
    description.spellings.push_back("-" + name);
  }
  // The first long name is the spelling with hyphens.
  for (const std::string& name : option.get_lnames()) {
    const bool is_first = name == option.get_lnames().front();
    (is_first ? description.spellings : description.other_spellings).push_back("--" + name);
  }
  if (option.get_group().empty()) {
    description.other_spellings.insert(description.other_spellings.end(),
                                       description.spellings.begin(),
                                       description.spellings.end());
    description.spellings.clear();
  }
  if (option.get_items_expected_max() > 0) {
    description.values.push_back(describe_value(option));
  }
  description.help = option.get_description();
  description.is_repeatable = option.get_expected_max() > 1;
  return description;
}

std::vector<std::string> describe_examples(const CLI::App& app) {
  std::vector<std::string> lines = split(app.get_footer(), '\n');
  lines.erase(lines.begin(), lines.begin() + (lines.empty() ? 0 : 1));
  for (std::string& line : lines) {
    line.erase(0, line.find_first_not_of(' '));
  }
  return lines;
}

CommandDescription describe(const CLI::App& app, const std::string& name, const std::string& help) {
  CommandDescription description{.name = name,
                                 .help = help,
                                 .text = app.get_description(),
                                 .options = {},
                                 .operands = {},
                                 .commands = {},
                                 .examples = describe_examples(app)};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      description.operands.push_back(describe_value(*option));
      description.operands.back().name = option->get_name(true);
    } else {
      description.options.push_back(describe_option(*option));
    }
  }
  if (app.get_prefix_command()) {
    description.operands.push_back({.kind = ValueKind::kProgram,
                                    .name = "PROGRAM",
                                    .choices = {},
                                    .default_value = {},
                                    .help = "Program to run, and its arguments",
                                    .is_required = true});
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string subcommand_name = name + " " + command->get_name();
    description.commands.push_back(describe(*command, subcommand_name, command->get_description()));
  }
  return description;
}

OptionDescription flag(std::vector<std::string> spellings, std::string help) {
  return {.spellings = std::move(spellings),
          .other_spellings = {},
          .values = {},
          .help = std::move(help),
          .is_repeatable = false};
}

}  // namespace

std::string CommandDescription::short_name() const {
  return name.substr(name.rfind(' ') + 1);
}

std::vector<std::string> program_examples() {
  return {"unisono run -n 4 train.py", "unisono doctor", "unisono bench all_reduce -n 4"};
}

CommandDescription describe_program() {
  CommandDescription program{
      .name = "unisono",
      .help = "train one model on many processes as if they were one",
      .text = "",
      .options = {flag({"-h", "--help"}, "Print the commands, or the options of one, and exit"),
                  flag({"--version"}, "Print the version and exit")},
      .operands = {},
      .commands = {},
      .examples = program_examples()};
  for (const Command& command : commands()) {
    (void)command.run({.describe = [&](const CLI::App& app) {
      program.commands.push_back(describe(app, app.get_name(), command.help));
    }});
  }
  return program;
}

}  // namespace unisono::cli
