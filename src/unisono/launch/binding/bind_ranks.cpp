#include "unisono/launch/binding/bind_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "unisono/base/cores.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/launch/binding/bind_to.h"
#include "unisono/launch/binding/read_topology.h"
#include "unisono/launch/binding/share_cores.h"
#include "unisono/launch/binding/topology.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/rank_ranges.h"

namespace unisono::launch {
namespace {

Topology usable_topology(const std::vector<int>& own) {
  try {
    Topology topology = restrict_to(read_topology(), own);
    if (topology.cores.empty()) {
      throw Error(ErrorCode::kSystem,
                  fmt::format("of the processors {} that this process may use libhwloc knows none",
                              rank_ranges(own)));
    }
    return topology;
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("run: ranks can't be bound to cores: {}; --bind-to none does without",
                            error.what()));
  }
}

}  // namespace

void bind_ranks(BindTo bind_to, JobLayout& job, const Logger& logger) {
  const std::vector<int> own = cores_of(0);
  const Topology topology = usable_topology(own);
  const int n_ranks = job.local_world_size;
  CoreShares shares = share_cores(topology, n_ranks, bind_to);
  const int n_cores = static_cast<int>(topology.cores.size());
  if (n_cores < n_ranks) {
    logger.warning(fmt::format(
        "{} ranks are bound to {} core{}, {}, which they share: start at most {}, or give the "
        "launcher more cores",
        n_ranks,
        n_cores,
        n_cores == 1 ? "" : "s",
        rank_ranges(own),
        n_cores));
  }
  job.cores = std::move(shares.processors);
  if (job.omp_threads) {
    // A control group may have fewer cores' worth of time.
    job.omp_threads = std::max(1, std::min(shares.n_threads, available_cores() / n_ranks));
  }
}

}  // namespace unisono::launch
