#include "unisono/cli/doctor/finding.h"

#include <iterator>
#include <string_view>

namespace unisono::cli::doctor {

std::string_view to_string(State state) {
  switch (state) {
    case State::kProblem:
      return "problem";
    case State::kWarning:
      return "warning";
    case State::kOk:
      return "ok";
    case State::kInfo:
      break;
  }
  return "info";
}

void append(Findings& findings, Findings more) {
  findings.insert(
      findings.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace unisono::cli::doctor
