#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/bucket_set.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/options.h"
#include "unisono/torch/ddp/pass_flags.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// How the gradients of the ranks become their mean.
struct GradientWeights {
  bool is_summed = false;    ///< Buckets are summed and then divided; otherwise averaged.
  std::int64_t own = 1;      ///< With is_summed: multiplies this rank's gradients.
  std::int64_t divisor = 1;  ///< With is_summed: divides the sum.
  double factor = 1;         ///< Multiplies the mean.
};

/// State of a Reducer that its features share. The Reducer owns it; features keep a reference.
struct PassContext {
  std::shared_ptr<ProcessGroup> group;
  DistributedDataParallelOptions options;
  BucketCaps caps;
  std::vector<NamedTensor> parameters;  ///< All require a gradient. Grows when some are unfrozen.
  std::vector<bool> is_sparse;          ///< By parameter: its gradients may be sparse.
  std::vector<NamedTensor> buffers;     ///< All buffers of the module.
  std::unique_ptr<BucketSet> buckets = {};
  GradientWeights weights = {};
  CommHook hook = {};             ///< Reduces full buckets; empty: an all_reduce does.
  std::string hook_refusal = {};  ///< A feature's reason to refuse a communication hook.
  std::int64_t n_votes = 0;       ///< Elements that a feature needs in the first bucket.
  std::string advice = {};        ///< Ends the errors of ranks that called different operations.
  bool has_comm_hook = false;     ///< A user's hook, which may leave ranks apart for a while.
  bool is_joined = false;         ///< Under join(), where ranks without batches stay behind.
  std::int64_t n_passes = 0;      ///< Synchronized passes that have ended well.
  std::vector<std::size_t> missing = {};       ///< Parameters without a gradient in this pass.
  std::span<const std::uint8_t> is_used = {};  ///< By parameter, after wait(); empty: all are.

  [[nodiscard]] bool uses(std::size_t parameter) const {
    return is_used.empty() || is_used[parameter] != 0;
  }

  void drop_gradients() const {
    for (const NamedTensor& parameter : parameters) {
      parameter.tensor.mutable_grad().reset();
    }
  }
};

/// The end of a synchronized pass, in which no rank threw an exception.
struct PassResult {
  PassFlags flags = 0;          ///< The feature's own bits, of all ranks.
  bool is_shadow = false;       ///< Under join(), of a rank without a batch.
  bool takes_gradients = true;  ///< The averages become this rank's gradients.
  bool is_dropped = false;      ///< Set by a feature: the pass has no gradients.
  bool is_over = false;         ///< Set by a feature: the other ranks throw now.
};

/// One optional feature of backward passes. The Reducer calls all features in the order of
/// make_features(), and knows none of them by name.
///
/// The Reducer owns its features. All calls come from the thread that calls backward(). An
/// exception ends the pass. Up to before_launch() the other ranks receive kGivenUp; later calls
/// must not throw on some ranks only, because the other ranks would wait for this rank.
class PassFeature {
 public:
  PassFeature() = default;
  virtual ~PassFeature() = default;

  PassFeature(const PassFeature&) = delete;
  PassFeature& operator=(const PassFeature&) = delete;
  PassFeature(PassFeature&&) = delete;
  PassFeature& operator=(PassFeature&&) = delete;

  /// Throws Error(kInvalidArgument) for parameters that the feature does not allow.
  virtual void check(const std::vector<NamedTensor>& /*parameters*/) const {}

  /// Before each forward pass whose gradients are averaged, on every rank.
  virtual void before_forward() {}

  /// Called at the start of a backward pass. `is_untouched`: the pass has not computed a gradient
  /// yet.
  virtual void on_backward(bool /*is_synchronized*/, bool /*is_untouched*/) {}

  /// The gradients of this pass will be averaged.
  virtual void on_synchronize() {}

  /// The gradient lies in its bucket, and may be changed there. A sparse gradient lies in no
  /// bucket, and may be undefined.
  virtual void adjust(std::size_t /*parameter*/, const at::Tensor& /*gradient*/) {}

  /// The gradient as it will be reduced, after adjust() of all features.
  virtual void inspect(std::size_t /*parameter*/, const at::Tensor& /*gradient*/) {}

  /// Returns true if adjust() has added a gradient where the pass has none.
  [[nodiscard]] virtual bool has_gradient(std::size_t /*parameter*/) const { return false; }

  virtual void before_launch(std::size_t /*bucket*/) {}

  /// Number of bits that flags() uses.
  [[nodiscard]] virtual int n_flags() const { return 0; }

  /// This rank's flags of the pass, once for each pass, when the last bucket is launched.
  virtual PassFlags flags() { return 0; }

  /// All buckets are launched. Operations may be started here, on every rank the same.
  virtual void after_launch(const std::function<bool(std::size_t)>& /*is_used*/) {}

  /// The buckets are reduced. Waits for the operations of after_launch().
  virtual void wait() {}

  /// The averages are there. Collective operations may be called, on every rank the same.
  virtual void end_pass(PassResult& /*result*/) {}

  /// backward() has averaged the gradients and is about to return.
  virtual void after_backward() {}

  /// The pass ends with an exception, on this rank or another.
  virtual void give_up() {}
};

/// The list of features. Each feature is a class and a line there.
[[nodiscard]] std::vector<std::unique_ptr<PassFeature>> make_features(PassContext& context);

/// Runs `action` and appends `advice`, if not empty, to an error with the given code.
template <class Action>
void explain(ErrorCode code, const std::string& advice, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() != code || advice.empty()) {
      throw;
    }
    throw Error(error.code(), std::string(error.what()) + "; " + advice);
  }
}

/// Runs `action` and appends a likely reason (fewer batches on that rank) to a kPeerLost error.
template <class Action>
void explain_uneven_inputs(const Action& action) {
  explain(ErrorCode::kPeerLost,
          "if that rank had fewer batches than this one, train by run_step(), or under "
          "DistributedDataParallel's join()",
          action);
}

}  // namespace unisono::ddp
