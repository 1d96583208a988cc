#include "unisono/torch/ddp/drift_watch.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/parameter_drift.h"
#include "unisono/torch/tensor/consistency.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

DriftWatch::DriftWatch(const std::vector<NamedTensor>& parameters, ParameterDrift policy)
    : parameters_(parameters),
      policy_(policy),
      samples_(parameters_),
      is_on_(policy != ParameterDrift::kIgnore) {}

// Parameters are looked at as late as in the backward pass, where they are what the pass was made
// with, and the same part of them on every rank.
std::optional<std::uint16_t> DriftWatch::take_fingerprint() {
  if (is_on_ && !is_paused_) {
    return samples_.take();
  }
  samples_.skip();
  return {};
}

void DriftWatch::report(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout) {
  try {
    check_consistent(group,
                     parameters_,
                     "DistributedDataParallel: parameters are no longer the same on all ranks",
                     timeout);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMismatch || policy_ == ParameterDrift::kThrow) {
      throw;
    }
    is_on_ = false;
    if (group.rank() == 0) {
      Logger("rank 0").warning(
          std::string(error.what()) +
          "; gradients are averaged, but each rank applies them to a model of its own. Load a "
          "state on every rank, or before the module is wrapped, and make the same steps on every "
          "rank");
    }
  }
}

}  // namespace unisono::ddp
