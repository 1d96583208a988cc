#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "processes/spawn.h"

namespace unisono::test {

/// True if a sanitizer is active. Limits of memory and time allow for the sanitizer's overhead.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

/// CPU time in seconds that a rank may use while it waits one second for a late rank.
inline constexpr double kMaxWaitingSeconds = kIsSanitized ? 0.1 : 0.02;

struct JobSetup {
  int world_size = 2;
  std::vector<std::string> mode = {"hello"};  ///< The rank program's arguments.
  /// Names of the ranks' simulated nodes. If empty, all ranks are on the machine's own node.
  std::vector<std::string> nodes = {};
  Variables variables = {};  ///< For all ranks together.
};

/// Processes of the rank program that meet at a port of 127.0.0.1, which rank 0 serves.
class Job {
 public:
  explicit Job(JobSetup setup) : setup_(std::move(setup)) {}

  /// The environment of a rank.
  [[nodiscard]] Variables variables(int rank) const;

  /// Starts a rank with `variables` added to its environment; a given variable replaces an existing
  /// variable of that name. Process i of processes() is the i-th process that was started.
  void start(int rank, const Variables& variables = {});

  /// Starts all ranks in their order.
  void start_all();

  [[nodiscard]] Processes& processes() { return processes_; }

  [[nodiscard]] const ReservedPort& port() const { return port_; }

 private:
  JobSetup setup_;
  ReservedPort port_;
  Processes processes_;
};

/// Starts all ranks and waits for their end.
[[nodiscard]] std::vector<ProcessResult> run_job(JobSetup setup);

[[nodiscard]] std::vector<std::string> split_lines(const std::string& text);

}  // namespace unisono::test
