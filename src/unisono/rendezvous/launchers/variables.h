#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// Reads environment variables and collects all problems, for a single message. Also records the
/// variables that were found. Lives during the evaluation of an environment; not thread-safe. Does
/// not throw for invalid variables.
class VariableReader {
 public:
  /// `environment` must outlive the reader.
  explicit VariableReader(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] bool is_set(const char* name) const { return environment_(name).has_value(); }

  /// Returns a required variable unchanged; "" after a complaint.
  std::string text(const char* name);

  /// Returns a required host name or address; "" after a complaint. `port_name` is the variable of
  /// the port, for messages.
  std::string host(const char* name, const char* port_name);

  /// Returns the names (never empty) in a required list of nodes; empty after a complaint.
  std::vector<std::string> nodes(const char* name);

  /// Returns an integer in [least, most]. Returns std::nullopt after a complaint, or if the
  /// variable is neither set nor needed.
  std::optional<std::int64_t> number(const char* name,
                                     std::int64_t least,
                                     std::int64_t most,
                                     bool is_needed);

  /// Returns a required number() of at least `least` that fits into an int.
  std::optional<int> needed_int(const char* name, int least);

  /// Returns an optional number() of at least `least` that fits into an int.
  std::optional<int> optional_int(const char* name, int least);

  /// Returns an optional TCP port number.
  std::optional<std::uint16_t> port(const char* name);

  /// Adds a complaint. Repeated complaints are added once.
  void complain(const std::string& problem);

  /// Returns all complaints, separated by "; ".
  [[nodiscard]] std::string problems() const;

  /// Returns the names of the variables with valid values, separated by ", ".
  [[nodiscard]] std::string found() const;

 private:
  const Environment& environment_;
  std::vector<std::string> problems_;
  std::vector<std::string> found_;
};

/// An environment variable that a launcher sets.
struct LauncherVariable {
  const char* name;
  const char* set_by;   ///< Program that sets the variable, e.g. "srun".
  const char* meaning;  ///< Meaning, e.g. "this task's rank".
};

/// Returns the variables of all known launchers, in the order of find_launch_info()'s search, for
/// the diagnosis of a failed start. No variable contains a secret.
[[nodiscard]] std::span<const LauncherVariable> launcher_variables();

/// Returns the process that set an environment variable for this process: the nearest ancestor that
/// was started without the variable. This is the same process for all ranks of a node that the
/// process started, through any shells and scripts. Reads /proc. Returns std::nullopt if the
/// ancestors end before, e.g. in a container.
[[nodiscard]] std::optional<pid_t> process_that_set(const char* variable);

/// Returns the value of `variable` in the first process that was started with `entries`
/// ("NAME=value") in the environment: this process or an ancestor. Later processes may have changed
/// the value. Reads /proc. Returns std::nullopt if this process was not started with the entries.
[[nodiscard]] std::optional<std::string> value_at_start(const char* variable,
                                                        const std::vector<std::string>& entries);

/// Returns true if the launcher serves the store at MASTER_PORT: TORCHELASTIC_USE_AGENT_STORE is
/// set, and the program has not changed MASTER_PORT, as programs do that start ranks themselves.
/// Reads /proc, and uses TORCHELASTIC_RUN_ID and TORCHELASTIC_ERROR_FILE to identify the launcher's
/// process.
[[nodiscard]] bool has_agent_store(const Environment& environment);

/// Largest number of names in a list.
inline constexpr std::size_t kMaxNodes = 65'536;

/// Returns the names in a Slurm node list, in order: "node[1-3,7],gpu05" is node1, node2, node3,
/// node7, gpu05.
///
/// Leading zeros are kept ("n[09-11]" is n09, n10, n11), the last of several brackets in a name
/// varies fastest, and duplicates remain.
///
/// Throws Error(kInvalidArgument), with the list and the position, for unmatched brackets, a range
/// that is empty, reversed or not numeric, an empty name or list, or more than kMaxNodes names.
[[nodiscard]] std::vector<std::string> expand_nodelist(std::string_view list);

/// Returns the numbers in a list such as SLURM_TASKS_PER_NODE: 4, 4, 3 for "4(x2),3". Returns
/// std::nullopt for an invalid list, a number below 1, or more than kMaxNodes numbers.
[[nodiscard]] std::optional<std::vector<int>> expand_counts(std::string_view text);

}  // namespace unisono::rendezvous
