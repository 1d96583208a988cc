#pragma once

namespace bench {

/// Resets the peak of peak_mib(). Throws std::runtime_error if the kernel does not support this.
void reset_peak();

/// Return the memory of this process, in MiB: the present value, and the maximum since
/// reset_peak().
double resident_mib();
double peak_mib();

}  // namespace bench
