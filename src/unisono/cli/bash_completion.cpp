#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "unisono/cli/completion_scripts.h"
#include "unisono/cli/description.h"

namespace unisono::cli {
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

// One branch of _unisono_know for the command, and one for each of its own.
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

}  // namespace unisono::cli
