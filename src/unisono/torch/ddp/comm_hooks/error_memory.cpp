#include "unisono/torch/ddp/comm_hooks/error_memory.h"

#include <cstddef>
#include <vector>

#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/gradient_views.h"
#include "unisono/torch/ddp/comm_hooks/lossy_floats.h"

namespace unisono::ddp {
void subtract_finite(const at::Tensor& error, const at::Tensor& sent) {
  if (error.scalar_type() == at::kFloat) {
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
