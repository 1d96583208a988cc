#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "unisono/cli/completion_scripts.h"
#include "unisono/cli/description.h"

namespace unisono::cli {
namespace {

constexpr std::string_view kZshBegin = R"(#compdef unisono
# zsh completion of unisono, as `unisono completion zsh` prints it

_unisono_program() {
  _alternative 'files:file:_files' 'commands:command: _command_names -e'
}
)";

// Autoloaded, this file is the body of the function that it defines.
constexpr std::string_view kZshEnd = R"(
if [[ ${funcstack[1]} == _unisono ]]; then
  _unisono "$@"
else
  compdef _unisono unisono
fi
)";

// Within quotes of the shell, and where _arguments and _describe give these characters a meaning.
std::string escape_for_zsh(std::string_view text) {
  std::string escaped;
  for (const char character : text) {
    if (character == '\'') {
      escaped += "'\\''";
    } else if (std::string_view("\\[]:").find(character) != std::string_view::npos) {
      escaped += fmt::format("\\{}", character);
    } else {
      escaped += character == '\n' ? ' ' : character;
    }
  }
  return escaped;
}

// "message:action", as _arguments has them.
std::string action_of(const Value& value) {
  const std::string message = escape_for_zsh(value.name);
  switch (value.kind) {
    case ValueKind::kChoice:
      return fmt::format("{}:({})", message, fmt::join(value.choices, " "));
    case ValueKind::kFile:
      return message + ":_files";
    case ValueKind::kFolder:
      return message + ":_files -/";
    case ValueKind::kHost:
      return message + ":_hosts";
    case ValueKind::kProgram:
      return message + ":_unisono_program";
    case ValueKind::kNothingKnown:
      break;
  }
  return message + ": ";
}

// One specification of _arguments for each spelling; a "!" before those that are not offered.
std::vector<std::string> specifications(const OptionDescription& option) {
  const std::string before = option.is_repeatable ? "*"
                             : option.spellings.size() > 1
                                 ? fmt::format("({})", fmt::join(option.spellings, " "))
                                 : "";
  const std::string help = fmt::format("[{}]", escape_for_zsh(option.help));
  const auto specify =
      [&](std::string_view mark, std::string_view spelling, std::string_view what) {
        if (option.values.empty()) {
          return fmt::format("'{}{}{}'", mark, spelling, what);
        }
        return fmt::format("'{}{}{}{}:{}'",
                           mark,
                           spelling,
                           spelling.starts_with("--") ? "=" : "+",
                           what,
                           action_of(option.values.front()));
      };
  std::vector<std::string> result;
  for (const std::string& spelling : option.spellings) {
    result.push_back(specify(before, spelling, help));
  }
  for (const std::string& spelling : option.other_spellings) {
    result.push_back(specify("!", spelling, ""));
  }
  return result;
}

std::vector<std::string> specifications(const CommandDescription& command) {
  std::vector<std::string> result;
  for (const OptionDescription& option : command.options) {
    for (const std::string& specification : specifications(option)) {
      result.push_back(specification);
    }
  }
  int place = 0;
  for (const Value& operand : command.operands) {
    const bool is_program = operand.kind == ValueKind::kProgram;
    result.push_back(fmt::format("'{}{}{}:{}'",
                                 is_program ? "(-)" : "",
                                 ++place,
                                 operand.is_required ? "" : ":",
                                 action_of(operand)));
    if (is_program) {
      result.emplace_back("'*:: :_normal'");
    }
  }
  if (!command.commands.empty()) {
    result.emplace_back("'(-)1: :->command'");
    result.emplace_back("'*:: :->words'");
  }
  return result;
}

std::string function_name(const CommandDescription& command) {
  std::string name = "_" + command.name;
  for (char& character : name) {
    character = character == ' ' ? '_' : character;
  }
  return name;
}

// Its function, behind those of its own commands.
std::string functions_of(const CommandDescription& command) {
  std::string functions;
  std::string cases;
  std::string names;
  for (const CommandDescription& own : command.commands) {
    functions += functions_of(own);
    cases += fmt::format("        {}) {} ;;\n", own.short_name(), function_name(own));
    names += fmt::format("    '{}:{}'\n", own.short_name(), escape_for_zsh(own.help));
  }
  const std::string call = fmt::format("  _arguments -C -S : \\\n    {}\n",
                                       fmt::join(specifications(command), " \\\n    "));
  if (command.commands.empty()) {
    return functions + fmt::format("\n{}() {{\n{}}}\n", function_name(command), call);
  }
  // An array of the name `commands` would hide the shell's own, of programs, from _command_names.
  return functions + fmt::format(R"(
{}() {{
  local curcontext=$curcontext state state_descr line
  local -a own_commands
  typeset -A opt_args
  own_commands=(
{}  )
{}  case $state in
    command) _describe -t commands command own_commands ;;
    words)
      case ${{words[1]}} in
{}      esac
      ;;
  esac
}}
)",
                                 function_name(command),
                                 names,
                                 call,
                                 cases);
}

}  // namespace

std::string zsh_completion(const CommandDescription& program) {
  return std::string(kZshBegin) + functions_of(program) + std::string(kZshEnd);
}

}  // namespace unisono::cli
