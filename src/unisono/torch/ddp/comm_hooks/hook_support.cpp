#include "unisono/torch/ddp/comm_hooks/hook_support.h"

#include <cstddef>

#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/comm_hooks/lossy_floats.h"

namespace unisono::ddp {

std::vector<BufferRange> gradient_ranges(const GradBucket& bucket) {
  const auto* const start = static_cast<const std::byte*>(bucket.buffer().const_data_ptr());
  std::vector<BufferRange> ranges;
  ranges.reserve(bucket.gradients().size());
  for (const at::Tensor& gradient : bucket.gradients()) {
    const auto* const first = static_cast<const std::byte*>(gradient.const_data_ptr());
    ranges.push_back(
        {.first = (first - start) / gradient.element_size(), .count = gradient.numel()});
  }
  return ranges;
}

std::vector<at::Tensor> gradient_views(const GradBucket& bucket, const at::Tensor& elements) {
  const std::vector<BufferRange> ranges = gradient_ranges(bucket);
  std::vector<at::Tensor> views;
  views.reserve(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const at::Tensor& gradient = bucket.gradients()[i];
    views.push_back(elements.as_strided(gradient.sizes(), gradient.strides(), ranges[i].first));
  }
  return views;
}

void subtract_finite(const at::Tensor& error, const at::Tensor& sent) {
  if (error.scalar_type() == at::kFloat && error.is_cpu()) {
    subtract_finite(error.data_ptr<float>(), sent.const_data_ptr<float>(), error.numel());
  } else {
    error.sub_(sent).nan_to_num_(0, 0, 0);
  }
}

void ErrorMemory::add_to(const GradBucket& bucket) const {
  for (std::size_t i = 0; i < bucket.gradients().size(); ++i) {
    const auto error = errors_.find(bucket.parameters()[i].unsafeGetTensorImpl());
    if (error != errors_.end()) {
      bucket.gradients()[i].add_(error->second);
    }
  }
}

void ErrorMemory::keep(const GradBucket& bucket, const at::Tensor& error) {
  const std::vector<at::Tensor> errors = gradient_views(bucket, error);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    errors_[bucket.parameters()[i].unsafeGetTensorImpl()] = errors[i];
  }
}

}  // namespace unisono::ddp
