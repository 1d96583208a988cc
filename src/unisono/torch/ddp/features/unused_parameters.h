#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/pass_feature.h"

namespace unisono::ddp {

/// With find_unused_parameters: which parameters any rank uses in a pass.
class UsedParameters : public PassFeature {
 public:
  explicit UsedParameters(PassContext& context) : context_(context) { allocate(); }

  /// Allocates for parameters that were unfrozen, before an operation of the pass has begun.
  void before_forward() override { allocate(); }

  void after_launch(const std::function<bool(std::size_t)>& is_used) override;

  void wait() override { work_.wait(); }

 private:
  void allocate();

  PassContext& context_;
  Buffer used_;  // u8 per parameter
  Work work_;
};

/// Without find_unused_parameters: parameters for which a pass had no gradient on some rank. All
/// ranks receive their names, and refuse the next forward pass.
class UnreachedParameters : public PassFeature {
 public:
  explicit UnreachedParameters(const PassContext& context) : context_(context) {}

  /// Throws Error(kInvalidArgument) with each rank's, as end_pass() has found them.
  void before_forward() override;

  [[nodiscard]] int n_flags() const override { return 1; }

  /// 1 if this rank lacks gradients.
  PassFlags flags() override { return context_.missing.empty() ? 0 : 1; }

  void end_pass(PassResult& result) override;

 private:
  const PassContext& context_;
  std::string problem_;  // the error of before_forward()
};

}  // namespace unisono::ddp
