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

template <class Key, class Plan, class Make>
const Plan& find_or_make(std::map<Key, Plan>& plans, Key key, Make make) {
  auto found = plans.find(key);
  if (found == plans.end()) {
    found = plans.emplace(key, make()).first;
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
  return find_or_make(one_shot_[receivers.kind], receivers.root, [&] {
    return collective::one_shot_plan(topology_, receivers);
  });
}

const ReducePlan& ReducePlans::two_shot(Receivers receivers) {
  return find_or_make(two_shot_[receivers.kind], receivers.root, [&] {
    return collective::two_shot_plan(topology_, receivers);
  });
}

const collective::StepPlan& ReducePlans::in_steps(Algorithm algorithm) {
  return find_or_make(in_steps_, algorithm, [&] {
    return collective::step_plan(algorithm, topology_.rank(), topology_.world_size());
  });
}

}  // namespace unisono::engine
