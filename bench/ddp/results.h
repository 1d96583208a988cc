#pragma once

#include <string>

#include "measure.h"
#include "options.h"

namespace bench {

/// Of a run, on all ranks.
struct Result {
  int n_ranks = 1;
  int samples_per_step = 0;  ///< Of all ranks.
  Measurement measured;
};

/// One line of JSON: model, ranks, step_ms_median, samples_per_s, exposed_comm_share (of the step's
/// time, what it takes longer than without synchronization; null where that was not measured), the
/// number of parameters, pss_mib, and the steps' quantiles in seconds.
std::string as_json(const Options& options, const Result& result);

/// Into --json FILE, or to standard output. Throws std::runtime_error for a file that can't be
/// written.
void write_result(const Options& options, const Result& result);

}  // namespace bench
