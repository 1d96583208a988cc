#include "unisono/torch/ddp/used_parameters.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "unisono/base/dtype.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono::ddp {

UsedParameters::UsedParameters(ProcessGroup& group, std::size_t n_parameters, bool is_found)
    : group_(group), n_parameters_(n_parameters) {
  if (is_found) {
    used_ = group_.allocate(static_cast<std::int64_t>(n_parameters_), DType::kUInt8);
  }
}

void UsedParameters::resize(std::size_t n_parameters) {
  if (used_.data != nullptr) {
    used_ = group_.allocate(static_cast<std::int64_t>(n_parameters), DType::kUInt8);
  }
  n_parameters_ = n_parameters;
}

void UsedParameters::launch(const std::function<bool(std::size_t)>& is_used,
                            std::optional<std::chrono::milliseconds> timeout) {
  auto* const used = static_cast<std::uint8_t*>(used_.data);
  if (used == nullptr) {
    return;
  }
  for (std::size_t i = 0; i < n_parameters_; ++i) {
    used[i] = is_used(i) ? 1 : 0;
  }
  work_ = group_.all_reduce_async(used_,
                                  {.op = kMax, .timeout = timeout, .label = "use of parameters"});
}

bool UsedParameters::has(std::size_t parameter) const {
  const auto* const used = static_cast<const std::uint8_t*>(used_.data);
  return used == nullptr || used[parameter] != 0;
}

}  // namespace unisono::ddp
