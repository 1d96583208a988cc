#include "staging.h"

#include <utility>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/torch/tensor/tensor.h"

#include "arguments.h"

namespace unisono::python {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor plain_copy(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

at::Tensor plain_like(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  return at::empty_like(tensor, at::MemoryFormat::Contiguous);
}

}  // namespace

// Other tensors are passed on: the operation refuses such tensors with a specific message.
bool PlainTensors::must_copy(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
         !is_plain(tensor);
}

at::Tensor PlainTensors::input(const at::Tensor& tensor) {
  return must_copy(tensor) ? plain_copy(tensor) : tensor;
}

// Overlaps are refused before any data is sent, instead of when the results are copied back.
at::Tensor PlainTensors::output(const at::Tensor& tensor) {
  if (!must_copy(tensor)) {
    return tensor;
  }
  at::assert_no_internal_overlap(tensor);
  return copies_.emplace_back(plain_like(tensor), tensor).first;
}

at::Tensor PlainTensors::in_out(const at::Tensor& tensor) {
  if (!must_copy(tensor)) {
    return tensor;
  }
  at::assert_no_internal_overlap(tensor);
  return copies_.emplace_back(plain_copy(tensor), tensor).first;
}

void PlainTensors::copy_back() {
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  for (auto& [copy, tensor] : copies_) {
    tensor.copy_(copy);
  }
  copies_.clear();
}

Buffer Staging::buffer_of(const at::Tensor& tensor, TensorAccess access) const {
  try {
    return elements_ == Elements::kMoved ? as_payload(tensor, access) : as_buffer(tensor, access);
  } catch (const Error& error) {
    arguments_->reject(error.what());
  }
}

Buffer Staging::input(const at::Tensor& tensor) {
  return buffer_of(PlainTensors::input(tensor), TensorAccess::kRead);
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
  if (!PlainTensors::must_copy(tensor)) {
    return buffer_of(tensor, TensorAccess::kWrite);
  }
  return buffer_of(arguments_->checked_by_torch([&] { return plain_.output(tensor); }),
                   TensorAccess::kWrite);
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
  if (!PlainTensors::must_copy(tensor)) {
    return buffer_of(tensor, TensorAccess::kReadWrite);
  }
  return buffer_of(arguments_->checked_by_torch([&] { return plain_.in_out(tensor); }),
                   TensorAccess::kReadWrite);
}

void Staging::copy_back() {
  plain_.copy_back();
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  for (const auto& step : steps_) {
    step();
  }
  steps_.clear();
}

}  // namespace unisono::python
