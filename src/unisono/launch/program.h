#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"

namespace unisono::launch {

/// How the user named the program.
struct ProgramRequest {
  std::vector<std::string> argv;  ///< Program and its arguments, as typed.
  bool is_module = false;         ///< argv[0] is a Python module.
  bool no_python = false;         ///< Execute even a .py file directly.
  bool is_python_file = false;    ///< argv[0] is a Python file, whatever its name.
  bool takes_local_rank = false;  ///< Its first argument is to be its local rank.
  std::string launcher = {};      ///< Path of the file of this process's own program.
};

/// What is going to be executed.
struct Program {
  std::string path;               ///< For execve(2).
  std::vector<std::string> argv;  ///< What the program sees as its own.
  /// Before which of these each rank is given its local rank; 0: nowhere.
  std::size_t local_rank_at = 0;
  std::string local_rank_option = "--local_rank";
  bool is_python = false;  ///< It is a Python, whatever its name.
};

/// A program can't be started; carries the exit code that shells give for it: 127 where there is
/// no such program, 126 where there is one that can't be executed.
class ProgramError : public Error {
 public:
  ProgramError(const std::string& message, int exit_code)
      : Error(ErrorCode::kNotFound, message), exit_code_(exit_code) {}

  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// Finds the program as a shell does, through PATH unless its name has a slash. Python files and
/// modules become arguments of a Python, with -u so that their lines are not held back: of
/// PYTHON_EXEC, else of the one whose package has installed the launcher, else of the `python3` in
/// PATH. The option for the local rank is spelled as in the Python file.
///
/// Throws ProgramError when nothing that can be executed is found.
[[nodiscard]] Program find_program(const ProgramRequest& request, const Environment& environment);

/// Whether a Python runs it, going by its name and first line.
[[nodiscard]] bool is_python(const Program& program);

/// The Python that runs it, going by its name and first line, or else the `python3` in PATH, which
/// a script of a shell may start; empty where there is none.
[[nodiscard]] std::string python_of(const Program& program, const Environment& environment);

/// The error for an exec of `program` that failed with `error_number`.
[[nodiscard]] ProgramError exec_error(const Program& program, int error_number);

}  // namespace unisono::launch
