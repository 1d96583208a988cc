#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/reduction.h"
#include "unisono/collective/choose.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

/// Returns the ranks that receive a result of a reduction.
[[nodiscard]] collective::Receivers receivers_of(const Operation& operation);

/// Returns the size of each rank's contribution to a reduction.
[[nodiscard]] std::int64_t contribution_bytes(const Operation& operation);

/// Chooses the algorithm of each reduction of a group: the caller's choice, otherwise the cheapest.
/// All ranks choose the same algorithm. The debug log of rank 0 has the choice and the reason, once
/// for each kind and magnitude.
///
/// Owned by NativeEngine; used only by the thread that executes an operation, except for check().
class AlgorithmChoice {
 public:
  /// `links`: costs of links, if the configuration has them. The other arguments must outlive the
  /// object.
  AlgorithmChoice(const collective::Topology& topology,
                  const GroupContext& group,
                  const std::optional<LinkCosts>& links);

  /// Throws Error(kInvalidArgument) if the caller's algorithm can't execute the operation.
  /// Thread-safe.
  void check(const Operation& operation) const;

  /// Returns the algorithm for a reduction, equal on all ranks.
  [[nodiscard]] Algorithm choose(const Operation& operation);

  /// Called after an operation: finds the costs of links, if choices depend on them. The ranks
  /// measure the costs unless all ranks were given them.
  void learn(OperationContext& context);

 private:
  [[nodiscard]] Algorithm cheapest(collective::Receivers::Kind receivers, std::int64_t n_bytes);
  void explain(const Operation& operation, const collective::Receivers& receivers);

  const collective::Topology& topology_;
  const GroupContext& group_;
  std::optional<LinkCosts> given_;
  // Equal on all ranks. Empty before the first measurement: default costs then apply.
  std::optional<LinkCosts> agreed_;
  const char* source_ = "not measured";
  collective::Chooser chooser_;

  // The last choice: most calls repeat the call before.
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
