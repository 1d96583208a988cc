#pragma once

#include <cstdint>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/link_costs.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/topology.h"

namespace unisono::collective {

/// Time of an algorithm as a function of the vector's size: the latency-bandwidth model of Hockney
/// (1994), with what a message costs its sender and receiver as in LogP (Culler et al., 1993).
struct Cost {
  double fixed;     ///< Seconds.
  double per_byte;  ///< Seconds.

  [[nodiscard]] double at(std::int64_t n_bytes) const {
    return fixed + per_byte * static_cast<double>(n_bytes);
  }
};

/// What `algorithm` takes on the slowest rank. All ranks come to the same figure.
[[nodiscard]] Cost cost_of(Algorithm algorithm, const Topology& topology, const LinkCosts& links);

/// Chooses among the algorithms whose result is the canonical tree's. All ranks that were given the
/// same costs choose the same.
class Chooser {
 public:
  struct Estimate {
    Algorithm algorithm;
    double seconds;
  };

  /// `slot_bytes` is the most that a rank can contribute to one-shot.
  Chooser(const Topology& topology, const LinkCosts& links, std::int64_t slot_bytes);

  /// The cheapest first.
  [[nodiscard]] std::vector<Estimate> estimates(Receivers::Kind receivers,
                                                std::int64_t n_bytes) const;

  [[nodiscard]] Algorithm choose(Receivers::Kind receivers, std::int64_t n_bytes) const;

  /// Whether the choice depends on what links cost. If not, measuring them is no use.
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
