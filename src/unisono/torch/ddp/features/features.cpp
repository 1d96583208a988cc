// The list of the features of a backward pass, in the order in which the Reducer calls them.
#include <memory>
#include <vector>

#include "unisono/torch/ddp/features/finite_check.h"
#include "unisono/torch/ddp/features/replica_consistency.h"
#include "unisono/torch/ddp/features/sparse_gradients.h"
#include "unisono/torch/ddp/features/step_mistakes.h"
#include "unisono/torch/ddp/features/unused_parameters.h"
#include "unisono/torch/ddp/features/weighted_samples.h"
#include "unisono/torch/ddp/logical_ranks/logical_ranks.h"
#include "unisono/torch/ddp/options.h"
#include "unisono/torch/ddp/pass_feature.h"

namespace unisono::ddp {
namespace {

using Features = std::vector<std::unique_ptr<PassFeature>>;

template <class Feature>
void add(Features& features, PassContext& context, bool is_on = true) {
  if (is_on) {
    features.push_back(std::make_unique<Feature>(context));
  }
}

}  // namespace

// The order of end_pass() is that of the collective operations. Gradients that are not finite are
// dropped before sparse ones are reduced.
Features make_features(PassContext& context) {
  const DistributedDataParallelOptions& options = context.options;
  const bool has_plain_steps = options.logical_ranks == 0 && !options.weigh_samples;
  Features features;
  add<RebuiltOptimizerWarning>(features, context);
  add<StepMistakes>(features, context, has_plain_steps);
  add<LogicalRanks>(features, context, options.logical_ranks > 0);
  add<WeightedSamples>(features, context, options.weigh_samples);
  add<FiniteCheck>(features, context, options.non_finite_gradients != NonFiniteGradients::kAllow);
  add<UsedParameters>(features, context, options.find_unused_parameters);
  add<SparseGradients>(features, context);
  add<ReplicaConsistency>(features, context, options.parameter_drift != ParameterDrift::kIgnore);
  add<UnreachedParameters>(features, context, !options.find_unused_parameters);
  return features;
}

}  // namespace unisono::ddp
