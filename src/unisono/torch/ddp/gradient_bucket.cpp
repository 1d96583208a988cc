#include "unisono/torch/ddp/gradient_bucket.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/bucket_memory.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {
namespace {

// Autograd and optimizers are fastest where a gradient's strides are its parameter's.
std::vector<std::int64_t> gradient_strides(const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) {
    return parameter.strides().vec();
  }
  return contiguous_strides(parameter.sizes());
}

void check_gradient(const at::Tensor& gradient, const at::Tensor& view, const std::string& name) {
  if (gradient.layout() != at::kStrided) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gradient of parameter '" + name +
                    "' is sparse; DistributedDataParallel reduces sparse gradients of "
                    "torch::nn::Embedding and EmbeddingBag only: build the layer with "
                    "sparse(false)");
  }
  if (gradient.scalar_type() != view.scalar_type() || gradient.sizes() != view.sizes() ||
      gradient.device() != view.device()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gradient of parameter '" + name + "' is " + describe(gradient) +
                    ", but the parameter was " + describe(view) +
                    " when it was wrapped: convert or resize a module before it is wrapped");
  }
}

bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides();
}

void copy_gradient(const at::Tensor& view, const at::Tensor& gradient) {
  // Nearly always both are laid out alike, and then a tensor copy's checks cost more than small
  // gradients' bytes.
  if (gradient.strides() == view.strides() && !gradient.is_neg() && !gradient.is_conj()) {
    std::memcpy(view.data_ptr(), gradient.const_data_ptr(), view.nbytes());
  } else {
    view.copy_(gradient);
  }
}

}  // namespace

GradientBucket::GradientBucket(ProcessGroup& group,
                               const BucketLayout& layout,
                               std::span<const NamedTensor> parameters,
                               const std::vector<bool>& is_sparse,
                               std::size_t index)
    : buffer_(group.allocate(layout.n_elems, layout.dtype)),
      memory_(std::make_unique<BucketMemory>(buffer_)) {
  for (const BucketSlot& slot : layout.slots) {
    const at::Tensor& parameter = parameters[slot.parameter].tensor;
    if (is_sparse[slot.parameter]) {
      views_.push_back(as_tensor(buffer_, slot.offset, {0}, {1}));
      continue;
    }
    views_.push_back(
        as_tensor(buffer_, slot.offset, parameter.sizes(), gradient_strides(parameter)));
    dense_views_.push_back(views_.back());
    dense_parameters_.push_back(parameter);
  }
  label_ =
      "bucket " + std::to_string(index) + " (" + parameters[layout.slots.front().parameter].name;
  if (layout.slots.size() > 1) {
    label_ += " and " + std::to_string(layout.slots.size() - 1) + " more";
  }
  label_ += ")";
}

void GradientBucket::deposit(std::size_t slot, const NamedTensor& parameter) const {
  const at::Tensor& view = views_[slot];
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) {
    view.zero_();
    return;
  }
  check_gradient(gradient, view, parameter.name);
  if (!is_same_memory(gradient, view)) {
    copy_gradient(view, gradient);
    gradient = view;
  }
}

void GradientBucket::launch(ProcessGroup& group, const ReduceBucketOptions& options) {
  work_ = group.all_reduce_async(buffer_,
                                 {.op = options.op, .timeout = options.timeout, .label = label_});
}

GradBucket GradientBucket::for_hook(std::size_t index,
                                    bool is_last,
                                    std::int64_t n_elems,
                                    std::optional<std::chrono::milliseconds> timeout) const {
  return GradBucket({.index = index,
                     .is_last = is_last,
                     .buffer = as_tensor(buffer_, 0, {n_elems}, {1}),
                     .gradients = dense_views_,
                     .parameters = dense_parameters_,
                     .label = label_,
                     .timeout = timeout});
}

at::Tensor GradientBucket::elements(std::int64_t offset, std::int64_t n_elems) const {
  return as_tensor(buffer_, offset, {n_elems}, {1});
}

}  // namespace unisono::ddp
