#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace unisono::cli::doctor {

enum class State {
  kProblem,  ///< A job fails, or does not start.
  kWarning,  ///< It may fail, or is slower than it could be.
  kOk,       ///< Examined, and good.
  kInfo      ///< Good to know.
};

/// "problem", "warning", "ok" or "info".
[[nodiscard]] std::string_view to_string(State state);

/// What an examination found: one row of the report.
struct Finding {
  State state = State::kInfo;
  std::string topic;        ///< What was examined: "secret", "port", ...
  std::string text;         ///< What is there, or wrong.
  std::string advice = {};  ///< What to do; may be empty where nothing is wrong.

  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

/// Puts `more` behind `findings`.
void append(Findings& findings, Findings more);

}  // namespace unisono::cli::doctor
