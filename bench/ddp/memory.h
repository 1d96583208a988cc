#pragma once

namespace bench {

/// This process's proportional share of memory, in MiB: shared pages count in parts.
struct Memory {
  double pss_mib = 0;
  /// Excludes mapped files: the share of each process depends on the number of other processes.
  double without_files_mib = 0;
};

/// Reads /proc/self/smaps_rollup. Throws std::runtime_error if the kernel does not provide the
/// values.
Memory memory_of_process();

}  // namespace bench
