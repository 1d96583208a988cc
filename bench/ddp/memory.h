#pragma once

namespace bench {

/// This process's proportional share of memory ("Pss" of /proc/self/smaps_rollup), in MiB: shared
/// pages count in parts. Throws std::runtime_error where the kernel does not tell.
double pss_mib();

}  // namespace bench
