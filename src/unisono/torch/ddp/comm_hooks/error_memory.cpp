#include "unisono/torch/ddp/comm_hooks/error_memory.h"

#include <cstddef>
#include <vector>

#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/gradient_views.h"

namespace unisono::ddp {

void ErrorMemory::add_to(const GradBucket& bucket) const {
  for (std::size_t i = 0; i < bucket.gradients().size(); ++i) {
    const auto error = errors_.find(bucket.parameters()[i].unsafeGetTensorImpl());
    if (error != errors_.end()) {
      bucket.gradients()[i].add_(error->second);
    }
  }
}

void ErrorMemory::keep(const GradBucket& bucket, const at::Tensor& error) {
  error.nan_to_num_(0, 0, 0);
  const std::vector<at::Tensor> errors = gradient_views(bucket, error);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    errors_[bucket.parameters()[i].unsafeGetTensorImpl()] = errors[i];
  }
}

}  // namespace unisono::ddp
