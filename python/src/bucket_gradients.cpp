#include "bucket_gradients.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "unisono/base/mutex.h"

namespace unisono::python {
namespace {

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

// Returns true if the gradient has the layout of the parameter in the bucket, which torch
// guarantees for such parameters.
bool has_contract_layout(const at::Tensor& parameter) {
  return parameter.is_non_overlapping_and_dense();
}

// Not a view of the bucket in autograd's sense, because zero_grad() may detach the gradient in
// place.
at::Tensor tensor_in(const at::Tensor& bucket, const at::Tensor& parameter, std::int64_t offset) {
  at::Tensor gradient = at::empty({0}, bucket.options());
  return gradient.set_(bucket.storage(), offset, parameter.sizes(), parameter.strides());
}

// Hook of the node that accumulates a parameter's gradient.
class BeforeAdding final : public torch::autograd::FunctionPreHook {
 public:
  BeforeAdding(std::weak_ptr<BucketGradients> gradients, BucketGradients::WeakTensor parameter)
      : gradients_(std::move(gradients)), parameter_(std::move(parameter)) {}

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) override {
    const std::shared_ptr<BucketGradients> gradients = gradients_.lock();
    const auto parameter = parameter_.lock();
    if (gradients != nullptr && parameter) {
      gradients->take_out(at::Tensor(parameter));
    }
    return inputs;
  }

  // A compiled backward pass has no accumulation nodes.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {}

  [[nodiscard]] bool is_of(const std::weak_ptr<BucketGradients>& gradients) const {
    return !gradients_.owner_before(gradients) && !gradients.owner_before(gradients_);
  }

 private:
  const std::weak_ptr<BucketGradients> gradients_;
  const BucketGradients::WeakTensor parameter_;
};

// Adds the hook at most once. Returns false for a frozen parameter.
bool hook_into(const at::Tensor& parameter, const std::weak_ptr<BucketGradients>& gradients) {
  if (!parameter.requires_grad()) {
    return false;
  }
  // The bucket's reducer keeps the accumulator alive.
  const auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  const bool has_hook =
      std::ranges::any_of(accumulator->pre_hooks(), [&gradients](const auto& hook) {
        const auto* const known = dynamic_cast<const BeforeAdding*>(hook.get());
        return known != nullptr && known->is_of(gradients);
      });
  if (!has_hook) {
    accumulator->add_pre_hook(std::make_unique<BeforeAdding>(
        gradients, BucketGradients::WeakTensor(parameter.getIntrusivePtr())));
  }
  return true;
}

}  // namespace

void BucketGradients::add(const c10d::GradBucket& bucket) {
  const std::vector<at::Tensor> parameters = bucket.getParameters();
  const std::vector<at::Tensor> gradients = bucket.getGradients();
  c10::StorageImpl* const storage = storage_of(bucket.getBuffer());
  Bucket added{.storage = bucket.getBuffer().storage().getWeakStorageImpl(), .places = {}};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (has_contract_layout(parameters[i]) && hook_into(parameters[i], weak_from_this())) {
      added.places.push_back({.parameter = WeakTensor(parameters[i].getIntrusivePtr()),
                              .offset = gradients[i].storage_offset()});
    }
  }
  const MutexLock lock(mutex_);
  std::erase_if(buckets_, [storage](const Bucket& known) {
    return known.storage.expired() || known.storage._unsafe_get_target() == storage;
  });
  buckets_.push_back(std::move(added));
}

void BucketGradients::adopt(const at::Tensor& tensor) {
  if (tensor.nbytes() != tensor.storage().nbytes()) {
    return;
  }
  for (const Place& place : places_in(tensor)) {
    const auto impl = place.parameter.lock();
    if (!impl) {
      continue;
    }
    const at::Tensor parameter(impl);
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined() && !gradient.requires_grad() && gradient.layout() == at::kStrided &&
        gradient.scalar_type() == tensor.scalar_type() && !gradient.is_alias_of(tensor)) {
      gradient = tensor_in(tensor, parameter, place.offset);
    }
  }
}

void BucketGradients::take_out(const at::Tensor& parameter) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (gradient.defined() && gradient.has_storage() && !places_in(gradient).empty()) {
    gradient = gradient.clone();
  }
}

std::vector<BucketGradients::Place> BucketGradients::places_in(const at::Tensor& tensor) {
  const MutexLock lock(mutex_);
  const auto bucket = std::ranges::find_if(buckets_, [&tensor](const Bucket& known) {
    return known.storage._unsafe_get_target() == storage_of(tensor);
  });
  return bucket == buckets_.end() ? std::vector<Place>() : bucket->places;
}

}  // namespace unisono::python
