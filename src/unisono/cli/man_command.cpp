#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/config.h"
#include "unisono/base/process.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"

namespace unisono::cli {

/// Returns the manual page unisono.1 in roff, with the table of settings. The result does not
/// depend on the machine.
[[nodiscard]] static std::string man_page(const CommandDescription& program);

namespace {

// Returns text that roff prints unchanged. A line must not begin with a roff request.
std::string escape(std::string_view text) {
  std::string escaped;
  bool begins_line = true;
  for (const char character : text) {
    if (begins_line && (character == '.' || character == '\'')) {
      escaped += "\\&";
    }
    begins_line = character == '\n';
    switch (character) {
      case '\\':
        escaped += "\\e";
        break;
      case '-':
        escaped += "\\-";
        break;
      case '\'':
        escaped += "\\(aq";
        break;
      case '`':
        escaped += "\\(ga";
        break;
      case '^':
        escaped += "\\(ha";
        break;
      case '~':
        escaped += "\\(ti";
        break;
      default:
        escaped += character;
    }
  }
  return escaped;
}

std::string bold(std::string_view text) {
  return "\\fB" + escape(text) + "\\fR";
}

std::string italic(std::string_view text) {
  return "\\fI" + escape(text) + "\\fR";
}

std::string with_default(const Value& value, const std::string& help) {
  return escape(value.default_value.empty()
                    ? help
                    : fmt::format("{} (default {})", help, value.default_value));
}

std::string item(const std::string& term, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", term, text.empty() ? "\\&" : text);
}

std::string option_item(const OptionDescription& option) {
  std::string term;
  for (const std::string& spelling : option.spellings) {
    term += (term.empty() ? "" : ", ") + bold(spelling);
  }
  if (option.values.empty()) {
    return item(term, escape(option.help));
  }
  const Value& value = option.values.front();
  return item(term + " " + italic(value.name), with_default(value, option.help));
}

std::string operand_item(const Value& operand) {
  std::string text = with_default(operand, operand.help);
  if (!operand.choices.empty()) {
    text += ": ";
    for (const std::string& choice : operand.choices) {
      text += (&choice == &operand.choices.front() ? "" : ", ") + bold(choice);
    }
  }
  return item(italic(operand.name), text);
}

// Keeps the line breaks of a description.
std::string paragraph(const std::string& text) {
  std::string lines;
  for (const char character : escape(text)) {
    lines += character == '\n' ? std::string("\n.br\n") : std::string(1, character);
  }
  return lines + (text.ends_with('.') ? "\n" : ".\n");
}

std::string usage(const CommandDescription& command) {
  std::string words = bold(command.name) + " [" + italic("OPTIONS") + "]";
  if (!command.commands.empty()) {
    words += " " + italic("COMMAND");
  }
  for (const Value& operand : command.operands) {
    const std::string name = italic(operand.name);
    words += " " + (operand.is_required ? name : "[" + name + "]");
    if (operand.kind == ValueKind::kProgram) {
      words += " [" + italic("ARGUMENTS") + "...]";
    }
  }
  return words;
}

std::string examples(const std::vector<std::string>& lines) {
  std::string text = ".nf\n.RS\n";
  for (const std::string& line : lines) {
    text += escape(line) + "\n";
  }
  return text + ".RE\n.fi\n";
}

// Returns the section of the command, followed by the sections of its subcommands.
std::string section(const CommandDescription& command) {
  std::string text = fmt::format(".SS {}\n{}\n.PP\n", escape(command.name), usage(command));
  text += paragraph(command.text);
  for (const Value& operand : command.operands) {
    text += operand_item(operand);
  }
  for (const OptionDescription& option : command.options) {
    if (!option.spellings.empty()) {
      text += option_item(option);
    }
  }
  // A command with subcommands has no examples of its own.
  if (command.commands.empty()) {
    text += ".PP\nExamples:\n.PP\n" + examples(command.examples);
  }
  for (const CommandDescription& own : command.commands) {
    text += section(own);
  }
  return text;
}

std::string settings() {
  std::string text = ".SH ENVIRONMENT\n";
  for (const ConfigRow& row : config_table()) {
    const std::string default_value = *row.default_value == '\0' ? "none" : row.default_value;
    text +=
        item(bold(row.name) + " (" + italic(row.type) + ", default " + escape(default_value) + ")",
             escape(row.help));
  }
  return text;
}

}  // namespace

std::string man_page(const CommandDescription& program) {
  std::string text = fmt::format(
      ".TH UNISONO 1 \"\" \"unisono {}\" \"User Commands\"\n"
      ".ad l\n"
      ".SH NAME\nunisono \\- {}\n"
      ".SH SYNOPSIS\n{}\n.PP\n{} {}\n"
      ".SH DESCRIPTION\n",
      release(),
      escape(program.help),
      usage(program),
      bold("unisono"),
      bold("--version"));
  for (const CommandDescription& command : program.commands) {
    text += item(bold(command.name), escape(command.help));
  }
  text += ".SH OPTIONS\n";
  for (const OptionDescription& option : program.options) {
    text += option_item(option);
  }
  text += ".SH COMMANDS\n";
  for (const CommandDescription& command : program.commands) {
    text += section(command);
  }
  text += settings();
  text +=
      ".SH EXIT STATUS\n"
      "0 after success, 2 after wrong usage, 1 after other failures. "
      "Commands that start a program exit as it does, with 126 where it can\\(aqt be executed and "
      "127 where it can\\(aqt be found.\n";
  return text + ".SH EXAMPLES\n" + examples(program.examples);
}

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
