#include "unisono/torch/ddp/comm_hooks/gradient_views.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::ddp {

std::vector<at::Tensor> gradient_views(const GradBucket& bucket, const at::Tensor& elements) {
  const auto* const start = static_cast<const std::byte*>(bucket.buffer().const_data_ptr());
  std::vector<at::Tensor> views;
  views.reserve(bucket.gradients().size());
  for (const at::Tensor& gradient : bucket.gradients()) {
    const std::int64_t offset = (static_cast<const std::byte*>(gradient.const_data_ptr()) - start) /
                                gradient.element_size();
    views.push_back(elements.as_strided(gradient.sizes(), gradient.strides(), offset));
  }
  return views;
}

}  // namespace unisono::ddp
