#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/parameter_drift.h"
#include "unisono/torch/ddp/parameter_samples.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Compares a part of the ranks' parameters in each pass, and does about ranks that have others
/// what was asked for. All calls are made on every rank alike.
class DriftWatch {
 public:
  /// `parameters` must outlive the object, and may grow.
  DriftWatch(const std::vector<NamedTensor>& parameters, ParameterDrift policy);

  /// For the marks of the pass; none where parameters are not compared.
  [[nodiscard]] std::optional<std::uint16_t> take_fingerprint();

  /// For good.
  void stop() { is_on_ = false; }

  void pause(bool is_paused) { is_paused_ = is_paused; }

  /// A collective operation, when all ranks have seen that two have other parameters: compares them
  /// once in full, to name one. Throws Error(kMismatch) where that was asked for; else rank 0
  /// warns, and nothing is compared any more.
  void report(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout);

 private:
  const std::vector<NamedTensor>& parameters_;
  ParameterDrift policy_;
  ParameterSamples samples_;
  bool is_on_;
  bool is_paused_ = false;
};

}  // namespace unisono::ddp
