#pragma once

#include <string>

#include "measure.h"
#include "options.h"

namespace bench {

/// Results of a run on all ranks.
struct Result {
  int n_ranks = 1;
  int samples_per_step = 0;  ///< For all ranks together.
  Measurement measured;
};

/// Returns one line of JSON: model, ranks, step_ms_median, samples_per_s, exposed_comm_share
/// (fraction of the step's time beyond a step without synchronization; null if not measured), the
/// number of parameters, pss_mib, and the steps' quantiles in seconds.
std::string as_json(const Options& options, const Result& result);

/// Writes to --json FILE or to standard output. Throws std::runtime_error if the file can't be
/// written.
void write_result(const Options& options, const Result& result);

}  // namespace bench
