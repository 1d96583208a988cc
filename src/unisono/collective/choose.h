#pragma once

#include <cstdint>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/reduction.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/topology.h"

namespace unisono::collective {

/// Time of an algorithm as a function of the vector's size: the latency-bandwidth model of Hockney
/// (1994), with the sender's and receiver's overhead per message as in LogP (Culler et al., 1993).
struct Cost {
  double fixed;     ///< Seconds.
  double per_byte;  ///< Seconds.

  [[nodiscard]] double at(std::int64_t n_bytes) const {
    return fixed + per_byte * static_cast<double>(n_bytes);
  }
};

/// Returns the time of `algorithm` on the slowest rank. All ranks compute the same value.
[[nodiscard]] Cost cost_of(Algorithm algorithm, const Topology& topology, const LinkCosts& links);

/// Chooses among the algorithms that evaluate the canonical tree. All ranks that receive the same
/// costs choose the same algorithm.
///
/// Immutable after construction, so that any thread may call all functions. Performs no I/O.
class Chooser {
 public:
  struct Estimate {
    Algorithm algorithm;
    double seconds;
  };

  /// `slot_bytes` is the maximum contribution of a rank to one-shot.
  Chooser(const Topology& topology, const LinkCosts& links, std::int64_t slot_bytes);

  /// Returns the time estimate of each possible algorithm, cheapest first.
  [[nodiscard]] std::vector<Estimate> estimates(Receivers::Kind receivers,
                                                std::int64_t n_bytes) const;

  /// Returns the cheapest algorithm for a vector of `n_bytes`.
  [[nodiscard]] Algorithm choose(Receivers::Kind receivers, std::int64_t n_bytes) const;

  /// Returns true if the choice depends on the link costs. Otherwise the links need not be
  /// measured.
  [[nodiscard]] static bool depends_on_links(const Topology& topology);

 private:
  struct Candidate {
    Algorithm algorithm;
    Cost cost;
  };

  [[nodiscard]] bool is_possible(Algorithm algorithm,
                                 Receivers::Kind receivers,
                                 std::int64_t n_bytes) const;

  std::int64_t slot_bytes_;
  bool has_one_node_;
  std::vector<Candidate> candidates_;
};

}  // namespace unisono::collective
