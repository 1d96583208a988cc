#include "unisono/engine/native/collectives/reduce_plans.h"

#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/step_plan.h"
#include "unisono/collective/topology.h"

namespace unisono::engine {
namespace {

using collective::Receivers;
using collective::ReducePlan;

const ReducePlan& find_or_make(std::map<int, ReducePlan>& plans,
                               const collective::Topology& topology,
                               Receivers receivers,
                               ReducePlan (*make)(const collective::Topology&, Receivers)) {
  auto found = plans.find(receivers.root);
  if (found == plans.end()) {
    found = plans.emplace(receivers.root, make(topology, receivers)).first;
  }
  return found->second;
}

}  // namespace

ReducePlans::ReducePlans(const collective::Topology& topology)
    : topology_(topology),
      whole_tree_(
          collective::reduce_steps(collective::leaves_of({.lo = 0, .hi = topology.world_size()}),
                                   {.lo = 0, .hi = topology.world_size()})) {}

const ReducePlan& ReducePlans::one_shot(Receivers receivers) {
  return find_or_make(one_shot_[receivers.kind], topology_, receivers, collective::one_shot_plan);
}

const ReducePlan& ReducePlans::two_shot(Receivers receivers) {
  return find_or_make(two_shot_[receivers.kind], topology_, receivers, collective::two_shot_plan);
}

const collective::StepPlan& ReducePlans::in_steps(Algorithm algorithm) {
  auto found = in_steps_.find(algorithm);
  if (found == in_steps_.end()) {
    found = in_steps_
                .emplace(algorithm,
                         collective::step_plan(algorithm, topology_.rank(), topology_.world_size()))
                .first;
  }
  return found->second;
}

}  // namespace unisono::engine
