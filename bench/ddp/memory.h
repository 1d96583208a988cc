#pragma once

namespace bench {

/// This process's proportional share of memory, in MiB: shared pages count in parts.
struct Memory {
  double pss_mib = 0;
  /// Without those of mapped files, of which each process has the less the more others run.
  double without_files_mib = 0;
};

/// As /proc/self/smaps_rollup has it. Throws std::runtime_error where the kernel does not tell.
Memory memory_of_process();

}  // namespace bench
