#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/non_finite.h"
#include "unisono/torch/ddp/pass_marks.h"

namespace unisono::ddp {

/// Looks for gradients that are not finite, pass by pass, and does about them what was asked for.
class FiniteWatch {
 public:
  explicit FiniteWatch(NonFiniteGradients policy) : policy_(policy) {}

  /// A gradient of this rank; none where it is undefined.
  void look_at(const std::string& parameter, const at::Tensor& gradient);

  /// What this rank tells the others of the pass so far.
  [[nodiscard]] PassStatus status() const {
    return found_.empty() ? PassStatus::kGood : PassStatus::kNonFinite;
  }

  /// The pass ends without the other ranks' view of it.
  void forget() { found_.clear(); }

  /// Whether report() throws.
  [[nodiscard]] bool ends_passes() const { return policy_ == NonFiniteGradients::kThrow; }

  /// A collective operation, when all ranks have seen that one has an infinity or NaN. Throws
  /// Error(kInvalidArgument) where that was asked for; else rank 0 warns.
  void report(ProcessGroup& group,
              std::int64_t pass,
              std::optional<std::chrono::milliseconds> timeout);

  /// Passes that were left out.
  [[nodiscard]] std::int64_t n_skipped() const { return n_skipped_; }

 private:
  NonFiniteGradients policy_;
  std::string found_;  // the pass's first parameter that is not finite, on this rank
  std::int64_t n_skipped_ = 0;
};

}  // namespace unisono::ddp
