#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "unisono/report/step_report.h"
#include "unisono/torch/ddp/bucket_set.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/gradient_hooks.h"
#include "unisono/torch/ddp/pass_feature.h"
#include "unisono/torch/ddp/pass_progress.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Averages the parameters' gradients over the ranks of a group while backward computes them.
///
/// In a synchronized pass each gradient is deposited in its bucket by its hook, buckets are
/// launched in the order of their numbers as they fill, and the end of backward waits for all of
/// them. Every rank launches every bucket in every such pass, whatever happens to it: where a pass
/// ends with an exception, the other ranks learn that from the last bucket. All else that a pass
/// may do is a PassFeature.
///
/// Not thread-safe; hooks run on the thread that calls backward().
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  /// The context's parameters all require a gradient, and are the same on every rank.
  explicit Reducer(PassContext context);

  /// Averages the gradients of these parameters as well from now on. `is_sparse` has a flag for
  /// each parameter. Every rank adds the same parameters, outside of passes. Buckets are laid out
  /// anew; the hook stays registered.
  ///
  /// Throws Error(kInvalidArgument), without any change, for types that the options do not allow.
  void add(const std::vector<NamedTensor>& parameters, const std::vector<bool>& is_sparse);

  [[nodiscard]] PassContext& context() { return context_; }

  /// The feature of that class; null if it is not in the list.
  template <class Feature>
  [[nodiscard]] Feature* find() const {
    for (const std::unique_ptr<PassFeature>& feature : features_) {
      if (auto* const found = dynamic_cast<Feature*>(feature.get())) {
        return found;
      }
    }
    return nullptr;
  }

  /// To be called before each synchronized forward pass, outside of backward. After the first
  /// pass this is where buckets are rebuilt in the order in which rank 0 saw the gradients (a
  /// collective operation).
  ///
  /// Throws what a feature throws there.
  void before_forward();

  /// Called when a backward pass starts from an output of the module. A pass that is not
  /// synchronized leaves the gradients where autograd puts them.
  void on_backward(bool is_synchronized);

  /// Sets the hook that reduces full buckets.
  ///
  /// Throws RefusedCall if a hook is set already, a pass has begun before, or logical ranks or
  /// weights are used.
  void set_hook(CommHook hook);

  /// Takes part in a synchronized pass of the other ranks with gradients of zero. Gradients of this
  /// rank that are views of the buckets become the averages; with set_averages_of_shadows(true) all
  /// gradients do. Called outside of backward, after before_forward().
  void shadow_pass();

  /// Takes part in the other ranks' synchronized pass without gradients, and gets the averages.
  /// `goes_on` is asked when the first bucket is reduced; if false, the others are left out. On
  /// every rank the same.
  void make_empty_pass(const std::function<bool()>& goes_on);

  /// Begins a step with one synchronized pass among several passes.
  void begin_step() {
    await_given_up_pass();
    is_step_reduced_ = false;
  }

  /// Shows the features the gradients of a pass that is not synchronized.
  void inspect_local_gradients();

  /// Ends the step here. The other ranks, which may wait for this one, throw kMismatch.
  void give_up_step();

  /// Waits for the operations of a pass that ended with an exception.
  void await_given_up_pass();

  /// Sets whether shadow_pass() leaves the averages as this rank's gradients, as other passes do.
  void set_averages_of_shadows(bool is_on) { has_averages_of_shadows_ = is_on; }

  /// Sets whether a pass is synchronized if the pass reaches parameters without going through the
  /// module's outputs (for example a penalty on the weights).
  void set_synchronized(bool is_synchronized) { is_synchronized_by_default_ = is_synchronized; }

  /// Timer of steps. The reducer adds backward passes and waits at the end of backward; the caller
  /// adds forward passes and the waits before a forward pass.
  [[nodiscard]] StepTimer& timer() { return timer_; }

 private:
  // Calls a function of all features, in their order.
  template <class Function, class... Arguments>
  void call(Function function, const Arguments&... arguments) const {
    for (const std::unique_ptr<PassFeature>& feature : features_) {
      ((*feature).*function)(arguments...);
    }
  }

  void begin_pass(bool is_synchronized, bool is_untouched);
  void synchronize_pass();
  void on_gradient(std::size_t parameter);
  void on_second_gradient(std::size_t parameter);
  void deposit(std::size_t parameter);
  void launch(std::size_t bucket, PassFlags flags);
  void launch_full_buckets();
  void launch_rest(PassFlags flags, bool is_shadow = false);
  [[nodiscard]] PassFlags collect_flags();
  void wait_for_first() const;
  void wait_for_buckets();
  void finish_pass();
  void finish_synchronized_pass(bool is_empty);
  [[nodiscard]] bool end_pass(PassResult result);
  void begin_empty_pass();
  void point_at_views();
  void give_up_pass() noexcept;
  void check(const std::vector<NamedTensor>& parameters) const;
  [[nodiscard]] std::unique_ptr<BucketSet> make_buckets(
      const std::vector<NamedTensor>& parameters,
      const std::vector<bool>& is_sparse,
      const std::vector<std::size_t>& order) const;

  PassContext context_;
  std::vector<std::unique_ptr<PassFeature>> features_;
  GradientOrder order_;
  StepTimer timer_;
  StepTimer::Time backward_begin_ = {};  // start of the last backward pass

  std::optional<PassProgress> progress_;  // set while a backward pass runs
  bool has_begun_ = false;
  bool is_synchronized_ = false;
  bool is_synchronized_by_default_ = true;
  bool is_step_reduced_ = false;  // the step's synchronized pass has begun
  bool is_rest_launched_ = false;
  bool is_given_up_ = false;  // the last pass was aborted, operations may be in flight
  bool has_averages_of_shadows_ = false;
  GradientHooks hooks_;
};

}  // namespace unisono::ddp
