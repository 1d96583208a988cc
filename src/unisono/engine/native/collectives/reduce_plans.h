#pragma once

#include <map>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/step_plan.h"
#include "unisono/collective/topology.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono::engine {

/// The plans of one rank, each made when first asked for: they depend on the topology alone.
class ReducePlans {
 public:
  /// The topology outlives it.
  explicit ReducePlans(const collective::Topology& topology);

  [[nodiscard]] const collective::ReducePlan& one_shot(collective::Receivers receivers);
  [[nodiscard]] const collective::ReducePlan& two_shot(collective::Receivers receivers);

  [[nodiscard]] const collective::StepPlan& in_steps(Algorithm algorithm);

  /// The canonical tree over all ranks' own elements.
  [[nodiscard]] kernels::ReduceSteps whole_tree() const { return whole_tree_; }

 private:
  // Of kRoot one for each root, at its index.
  using PlansOfKind = std::map<int, collective::ReducePlan>;

  const collective::Topology& topology_;
  std::vector<kernels::ReduceStep> whole_tree_;
  std::map<collective::Receivers::Kind, PlansOfKind> one_shot_;
  std::map<collective::Receivers::Kind, PlansOfKind> two_shot_;
  std::map<Algorithm, collective::StepPlan> in_steps_;
};

}  // namespace unisono::engine
