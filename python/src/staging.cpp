#include "staging.h"

#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "unisono/base/buffer.h"
#include "unisono/torch/tensor.h"

namespace unisono::python {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Others are for as_buffer() to refuse, which says why.
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

Buffer Staging::input(const at::Tensor& tensor) {
  if (!can_be_copied(tensor) || is_plain(tensor)) {
    return as_buffer(tensor);
  }
  return as_buffer(plain_copy(tensor));
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
    return as_buffer(tensor);
  }
  return as_buffer(copies_.emplace_back(plain_like(tensor), tensor).first);
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
    return as_buffer(tensor);
  }
  return as_buffer(copies_.emplace_back(plain_copy(tensor), tensor).first);
}

void Staging::add_copy(at::Tensor copy, at::Tensor tensor) {
  copies_.emplace_back(std::move(copy), std::move(tensor));
}

void Staging::copy_back() {
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  for (auto& [copy, tensor] : copies_) {
    tensor.copy_(copy);
  }
  copies_.clear();
}

}  // namespace unisono::python
