#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace unisono {

/// What is done about gradients with an infinity or NaN on any rank.
enum class NonFiniteGradients : std::uint8_t {
  kAllow,  ///< Nothing: all ranks get them.
  kThrow,  ///< backward() throws on all ranks; no parameter has a gradient.
  kSkip    ///< All ranks drop the pass's gradients, so that optimizers leave the step out.
};

namespace ddp {

/// Whether no element is an infinity or NaN; of a sparse tensor it is not known, and true.
[[nodiscard]] bool is_finite(const at::Tensor& tensor);

/// A collective operation: who has what, "rank 1 has ... in 'fc.weight'". `own` names this rank's
/// parameter; empty if its gradients are finite.
[[nodiscard]] std::string describe_non_finite(ProcessGroup& group,
                                              const std::string& own,
                                              std::optional<std::chrono::milliseconds> timeout);

}  // namespace ddp
}  // namespace unisono
