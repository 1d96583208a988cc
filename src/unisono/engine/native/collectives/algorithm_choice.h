#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "unisono/base/algorithm.h"
#include "unisono/base/link_costs.h"
#include "unisono/collective/choose.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/operation.h"
#include "unisono/health/rank_status.h"
#include "unisono/kernels/compress.h"

namespace unisono::engine {

/// Which ranks an operation that reduces leaves a result on.
[[nodiscard]] collective::Receivers receivers_of(const Operation& operation);

/// What each rank contributes to it.
[[nodiscard]] std::int64_t contribution_bytes(const Operation& operation);

/// What an algorithm does to elements on their way to other nodes.
[[nodiscard]] kernels::Compression compression_of(Algorithm algorithm);

/// How a group's reductions are carried out: as the caller says, else as costs least. All ranks
/// choose the same. The debug log of rank 0 says what was chosen and why, once for each kind and
/// magnitude.
class AlgorithmChoice {
 public:
  /// `links`: what links cost, if it is known. The others outlive it.
  AlgorithmChoice(const collective::Topology& topology,
                  const health::RankStatus& ranks,
                  const std::optional<LinkCosts>& links);

  /// Throws Error(kInvalidArgument) if the algorithm that the caller asks for can't carry it out.
  /// Thread-safe.
  void check(const Operation& operation) const;

  [[nodiscard]] Algorithm choose(const Operation& operation);

  /// After an operation: finds out what links cost, if choices depend on it. Where not all ranks
  /// were told, they measure it.
  void learn(OperationContext& context);

 private:
  [[nodiscard]] Algorithm cheapest(collective::Receivers::Kind receivers, std::int64_t n_bytes);
  void explain(const Operation& operation, const collective::Receivers& receivers);

  const collective::Topology& topology_;
  const health::RankStatus& ranks_;
  std::optional<LinkCosts> given_;
  // The same on all ranks, unless nothing depends on it; before that what is usual.
  std::optional<LinkCosts> agreed_;
  const char* source_ = "not measured";
  collective::Chooser chooser_;

  // What it chose last: most calls are like the one before.
  struct Choice {
    collective::Receivers::Kind receivers = collective::Receivers::Kind::kAll;
    std::int64_t n_bytes = -1;
    Algorithm algorithm = Algorithm::kAuto;
  };

  Choice last_;
  // Receivers and magnitudes of size that were explained.
  std::set<std::pair<collective::Receivers::Kind, int>> explained_;
};

}  // namespace unisono::engine
