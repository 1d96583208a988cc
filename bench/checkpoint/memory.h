#pragma once

namespace bench {

/// From here on, peak_mib() begins anew. Throws std::runtime_error where the kernel can't do that.
void reset_peak();

/// What this process has in memory now, and the most that it had since reset_peak(), in MiB.
double resident_mib();
double peak_mib();

}  // namespace bench
