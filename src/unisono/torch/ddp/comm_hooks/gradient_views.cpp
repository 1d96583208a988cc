#include "unisono/torch/ddp/comm_hooks/gradient_views.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::ddp {

std::vector<ElementRange> gradient_ranges(const GradBucket& bucket) {
  const auto* const start = static_cast<const std::byte*>(bucket.buffer().const_data_ptr());
  std::vector<ElementRange> ranges;
  ranges.reserve(bucket.gradients().size());
  for (const at::Tensor& gradient : bucket.gradients()) {
    const auto* const first = static_cast<const std::byte*>(gradient.const_data_ptr());
    ranges.push_back(
        {.first = (first - start) / gradient.element_size(), .count = gradient.numel()});
  }
  return ranges;
}

std::vector<at::Tensor> gradient_views(const GradBucket& bucket, const at::Tensor& elements) {
  const std::vector<ElementRange> ranges = gradient_ranges(bucket);
  std::vector<at::Tensor> views;
  views.reserve(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const at::Tensor& gradient = bucket.gradients()[i];
    views.push_back(elements.as_strided(gradient.sizes(), gradient.strides(), ranges[i].first));
  }
  return views;
}

}  // namespace unisono::ddp
