#include "unisono/torch/ddp/gradient_order.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/bucket_plan.h"

namespace unisono::ddp {

GradientOrder::GradientOrder(std::size_t n_parameters) : present_(reverse_order(n_parameters)) {}

void GradientOrder::add(std::size_t n_parameters) {
  const std::size_t n_before = present_.size();
  for (const std::size_t parameter : reverse_order(n_parameters)) {
    present_.push_back(n_before + parameter);
  }
  seen_.clear();
  is_agreed_ = false;
}

void GradientOrder::observe(const std::vector<std::size_t>& seen) {
  if (!is_agreed_) {
    seen_ = seen;
  }
}

bool GradientOrder::agree(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout) {
  if (seen_.empty()) {
    return false;
  }
  std::vector<std::int64_t> numbers(seen_.begin(), seen_.end());
  group.broadcast(as_buffer(std::span(numbers)),
                  {.timeout = timeout, .label = "order of gradients"});
  seen_.clear();
  is_agreed_ = true;
  const std::vector<std::size_t> before = std::exchange(present_, {numbers.begin(), numbers.end()});
  return present_ != before;
}

}  // namespace unisono::ddp
