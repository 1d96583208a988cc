#include "unisono/torch/ddp/finite_watch.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/non_finite.h"

namespace unisono::ddp {

void FiniteWatch::look_at(const std::string& parameter, const at::Tensor& gradient) {
  if (policy_ == NonFiniteGradients::kAllow || !found_.empty() || !gradient.defined()) {
    return;
  }
  if (!is_finite(gradient.is_non_overlapping_and_dense() ? gradient : gradient.contiguous())) {
    found_ = parameter;
  }
}

void FiniteWatch::report(ProcessGroup& group,
                         std::int64_t pass,
                         std::optional<std::chrono::milliseconds> timeout) {
  const std::string where = describe_non_finite(group, std::exchange(found_, {}), timeout);
  const std::string message = "DistributedDataParallel: gradients of pass " + std::to_string(pass) +
                              " have an infinity or NaN: " + where;
  if (ends_passes()) {
    throw Error(ErrorCode::kInvalidArgument,
                "[rank " + std::to_string(group.rank()) + "] " + message);
  }
  ++n_skipped_;
  if (group.rank() == 0) {
    Logger("rank 0").warning(message + "; the step is left out");
  }
}

}  // namespace unisono::ddp
