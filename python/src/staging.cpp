#include "staging.h"

#include <utility>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/torch/tensor/tensor.h"

#include "arguments.h"

namespace unisono::python {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Others are for buffer_of() to refuse, which says why.
bool can_be_copied(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu();
}

at::Tensor plain_copy(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

at::Tensor plain_like(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

}  // namespace

Buffer Staging::buffer_of(const at::Tensor& tensor) const {
  try {
    return as_buffer(tensor);
  } catch (const Error& error) {
    arguments_->reject(error.what());
  }
}

// Before anything is sent, not when the results are copied back.
void Staging::require_no_overlap(const at::Tensor& tensor) const {
  arguments_->checked_by_torch([&] { at::assert_no_internal_overlap(tensor); });
}

Buffer Staging::input(const at::Tensor& tensor) {
  if (!can_be_copied(tensor) || is_plain(tensor)) {
    return buffer_of(tensor);
  }
  return buffer_of(plain_copy(tensor));
}

std::vector<Buffer> Staging::inputs(at::TensorList tensors) {
  std::vector<Buffer> buffers;
  buffers.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    buffers.push_back(input(tensor));
  }
  return buffers;
}

Buffer Staging::output(const at::Tensor& tensor) {
  if (!can_be_copied(tensor) || is_plain(tensor)) {
    return buffer_of(tensor);
  }
  require_no_overlap(tensor);
  return buffer_of(copies_.emplace_back(plain_like(tensor), tensor).first);
}

std::vector<Buffer> Staging::outputs(at::TensorList tensors) {
  std::vector<Buffer> buffers;
  buffers.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    buffers.push_back(output(tensor));
  }
  return buffers;
}

Buffer Staging::in_out(const at::Tensor& tensor) {
  if (!can_be_copied(tensor) || is_plain(tensor)) {
    return buffer_of(tensor);
  }
  require_no_overlap(tensor);
  return buffer_of(copies_.emplace_back(plain_copy(tensor), tensor).first);
}

void Staging::copy_back() {
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  for (auto& [copy, tensor] : copies_) {
    tensor.copy_(copy);
  }
  copies_.clear();
  for (const auto& step : steps_) {
    step();
  }
  steps_.clear();
}

}  // namespace unisono::python
