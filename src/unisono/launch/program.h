#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"

namespace unisono::launch {

/// The program as the user named it.
struct ProgramRequest {
  std::vector<std::string> argv;  ///< Program and arguments, as typed.
  bool is_module = false;         ///< argv[0] is a Python module.
  bool no_python = false;         ///< A .py file is executed directly as well.
  bool is_python_file = false;    ///< argv[0] is a Python file, whatever its name.
  bool takes_local_rank = false;  ///< The first argument of a rank is its local rank.
  std::string launcher = {};      ///< Path of this process's own executable.
};

/// The program as it will be executed.
struct Program {
  std::string path;               ///< For execve(2).
  std::vector<std::string> argv;  ///< Arguments of the program.
  /// Index in argv at which each rank's local rank is inserted; 0: the local rank is not passed.
  std::size_t local_rank_at = 0;
  std::string local_rank_option = "--local_rank";
  bool is_python = false;  ///< `path` is a Python interpreter, whatever its name.
};

/// A program cannot be started. Carries the exit code that shells use: 127 if the program does not
/// exist, 126 if it cannot be executed.
class ProgramError : public Error {
 public:
  ProgramError(const std::string& message, int exit_code)
      : Error(ErrorCode::kNotFound, message), exit_code_(exit_code) {}

  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// Finds the program as a shell does, through PATH unless the name has a slash. A Python file or
/// module becomes an argument of a Python interpreter, with -u so that output is not buffered. The
/// interpreter is PYTHON_EXEC, or the Python that has installed the launcher as part of a package,
/// or the `python3` in PATH, in this order. The option for the local rank has the spelling that the
/// Python file uses.
///
/// Throws ProgramError if no executable file is found.
[[nodiscard]] Program find_program(const ProgramRequest& request, const Environment& environment);

/// Returns true if a Python interpreter runs the program, according to its name and first line.
[[nodiscard]] bool is_python(const Program& program);

/// Returns the Python that runs the program, according to its name and first line. Otherwise
/// returns the `python3` in PATH, which a shell script may start; empty if there is no `python3`.
[[nodiscard]] std::string python_of(const Program& program, const Environment& environment);

/// Returns the error for an exec of `program` that failed with `error_number`.
[[nodiscard]] ProgramError exec_error(const Program& program, int error_number);

}  // namespace unisono::launch
