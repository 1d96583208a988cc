#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"

namespace unisono::cli {

/// Returns functions for bash 4.4 or newer. For the program after `unisono run` the functions use
/// bash-completion if that is installed.
[[nodiscard]] static std::string bash_completion(const CommandDescription& program);

/// Returns a zsh function, for fpath or to be sourced after compinit.
[[nodiscard]] static std::string zsh_completion(const CommandDescription& program);

namespace {

constexpr std::string_view kBegin =
    R"(# bash completion of unisono, as `unisono completion bash` prints it

# What may follow a command ($1) and, where it takes a value, its option ($2).
_unisono_know() {
  commands='' options='' value=''
  operands=()
  case $1 in
)";

constexpr std::string_view kEnd = R"(  esac
}

# Readline cuts words at = and :, too: puts them together again, with the place of each.
_unisono_split() {
  local rest=$COMP_LINE index
  words=()
  places=()
  for ((index = 0; index <= COMP_CWORD; ++index)); do
    if [[ -z $COMP_LINE || $index == 0 || $rest == [[:space:]]* ]]; then
      words+=("${COMP_WORDS[index]}")
      places+=("$index")
      rest=${rest#"${rest%%[![:space:]]*}"}
    else
      words[-1]+=${COMP_WORDS[index]}
    fi
    rest=${rest#"${COMP_WORDS[index]}"}
  done
}

# A kind of word, and the words to choose from if it is that kind.
_unisono_offer() {
  local kind=$1
  shift
  case $kind in
    choice) mapfile -t COMPREPLY < <(compgen -W "$*" -- "$current") ;;
    host) mapfile -t COMPREPLY < <(compgen -A hostname -- "$current") ;;
    folder)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      ;;
    file)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      ;;
    program)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(
        compgen -f -- "$current"
        [[ -z $current || $current == */* ]] || compgen -c -- "$current"
      )
      ;;
  esac
}

_unisono() {
  local commands options operands value words places
  local command=unisono option='' ended='' count=0 index word current
  COMPREPLY=()
  _unisono_split
  for ((index = 1; index < ${#words[@]} - 1; ++index)); do
    word=${words[index]}
    _unisono_know "$command" "$option"
    option=''
    if [[ -n $value ]]; then
      continue
    elif [[ -z $ended && $word == -- ]]; then
      ended=yes
    elif [[ -z $ended && $word == -* ]]; then
      option=$word
    elif [[ " $commands " == *" $word "* ]]; then
      command+=" $word"
    elif [[ ${operands[count]-} == program ]]; then
      current=${words[-1]}
      if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "${places[index]}"
      elif declare -F _command_offset >/dev/null; then
        _command_offset "${places[index]}"
      else
        _unisono_offer file
      fi
      return
    else
      ((++count))
    fi
  done
  current=${words[-1]}
  if [[ -z $ended && -z $option && $current == --*=* ]]; then
    option=${current%%=*}
    current=${current#*=}
  fi
  _unisono_know "$command" "$option"
  if [[ -n $value ]]; then
    # shellcheck disable=SC2086 # a kind, and its words
    _unisono_offer $value
    if [[ ${words[-1]} == "$option="* && $COMP_WORDBREAKS != *=* ]]; then
      COMPREPLY=("${COMPREPLY[@]/#/$option=}")
    fi
  elif [[ -z $ended && $current == -* ]]; then
    _unisono_offer choice "$options"
  elif [[ -n $commands ]]; then
    _unisono_offer choice "$commands"
  elif [[ -n ${operands[count]-} ]]; then
    # shellcheck disable=SC2086 # as above
    _unisono_offer ${operands[count]}
  elif [[ -z $ended ]]; then
    _unisono_offer choice "$options"
  fi
}

complete -F _unisono unisono
)";

std::string words_of(const Value& value) {
  switch (value.kind) {
    case ValueKind::kChoice:
      return fmt::format("choice {}", fmt::join(value.choices, " "));
    case ValueKind::kFile:
      return "file";
    case ValueKind::kFolder:
      return "folder";
    case ValueKind::kHost:
      return "host";
    case ValueKind::kProgram:
      return "program";
    case ValueKind::kNothingKnown:
      break;
  }
  return "nothing";
}

std::string option_cases(const CommandDescription& command) {
  std::string cases;
  for (const OptionDescription& option : command.options) {
    if (!option.values.empty()) {
      std::vector<std::string> names = option.spellings;
      names.insert(names.end(), option.other_spellings.begin(), option.other_spellings.end());
      cases += fmt::format(
          "        {}) value='{}' ;;\n", fmt::join(names, " | "), words_of(option.values.front()));
    }
  }
  return cases.empty() ? "" : fmt::format("      case $2 in\n{}      esac\n", cases);
}

// Returns the branch of _unisono_know for the command and the branches of its subcommands.
std::string command_cases(const CommandDescription& command) {
  std::vector<std::string> options;
  for (const OptionDescription& option : command.options) {
    options.insert(options.end(), option.spellings.begin(), option.spellings.end());
  }
  std::vector<std::string> operands;
  for (const Value& operand : command.operands) {
    operands.push_back("'" + words_of(operand) + "'");
  }
  std::vector<std::string> commands;
  std::string cases_of_commands;
  for (const CommandDescription& own : command.commands) {
    commands.push_back(own.short_name());
    cases_of_commands += command_cases(own);
  }
  return fmt::format(
      "    '{}')\n      commands='{}'\n      options='{}'\n      operands=({})\n{}      ;;\n{}",
      command.name,
      fmt::join(commands, " "),
      fmt::join(options, " "),
      fmt::join(operands, " "),
      option_cases(command),
      cases_of_commands);
}

}  // namespace

std::string bash_completion(const CommandDescription& program) {
  return std::string(kBegin) + command_cases(program) + std::string(kEnd);
}

namespace {

constexpr std::string_view kZshBegin = R"(#compdef unisono
# zsh completion of unisono, as `unisono completion zsh` prints it

_unisono_program() {
  _alternative 'files:file:_files' 'commands:command: _command_names -e'
}
)";

// An autoloaded file is the body of the function that it defines.
constexpr std::string_view kZshEnd = R"(
if [[ ${funcstack[1]} == _unisono ]]; then
  _unisono "$@"
else
  compdef _unisono unisono
fi
)";

// Escapes a text for the shell's quotes, and the characters that are special in _arguments and
// _describe.
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

// Returns "message:action" in the form of _arguments.
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

// Returns a specification of _arguments for each spelling, with a "!" for spellings that are not
// offered.
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

// Returns the function of the command, after the functions of its subcommands.
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
  // An array named `commands` would hide the shell's own array of programs from _command_names.
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

namespace {

struct Shell {
  const char* name;
  std::string (*complete)(const CommandDescription& program);
};

constexpr std::array kShells{Shell{"bash", bash_completion}, Shell{"zsh", zsh_completion}};

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Shell& shell : kShells) {
    result.emplace_back(shell.name);
  }
  return result;
}

}  // namespace

int completion_command(const CommandLine& line) {
  CLI::App app(
      "Prints a script by which a shell completes this program's commands, options and their "
      "values",
      "unisono completion");
  std::string shell;
  app.add_option("SHELL", shell, "Which shell")
      ->type_name(fmt::format("{}", fmt::join(names(), "|")))
      ->required();
  add_examples(app, {"source <(unisono completion bash)", "source <(unisono completion zsh)"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  for (const Shell& known : kShells) {
    if (shell == known.name) {
      fmt::print("{}", known.complete(describe_program()));
      return 0;
    }
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "completion: there is no shell {}; there are {}", shell, fmt::join(names(), ", ")));
}

}  // namespace unisono::cli
