#include "unisono/torch/tensor/tensor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "unisono/base/error.h"
#include "unisono/torch/device/device_stream.h"
#include "unisono/torch/tensor/random_state.h"

namespace unisono {
namespace {

constexpr std::array<std::pair<at::ScalarType, DType>, kDTypeCount> kTypes{{
    {at::ScalarType::Char, DType::kInt8},
    {at::ScalarType::Byte, DType::kUInt8},
    {at::ScalarType::Short, DType::kInt16},
    {at::ScalarType::UInt16, DType::kUInt16},
    {at::ScalarType::Int, DType::kInt32},
    {at::ScalarType::UInt32, DType::kUInt32},
    {at::ScalarType::Long, DType::kInt64},
    {at::ScalarType::UInt64, DType::kUInt64},
    {at::ScalarType::Half, DType::kFloat16},
    {at::ScalarType::BFloat16, DType::kBFloat16},
    {at::ScalarType::Float, DType::kFloat32},
    {at::ScalarType::Double, DType::kFloat64},
    {at::ScalarType::ComplexFloat, DType::kComplex64},
    {at::ScalarType::ComplexDouble, DType::kComplex128},
    {at::ScalarType::Bool, DType::kBool},
}};

[[noreturn]] void reject(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

std::optional<DType> find_dtype(at::ScalarType type) {
  for (const auto& [theirs, ours] : kTypes) {
    if (theirs == type) {
      return ours;
    }
  }
  return std::nullopt;
}

// Returns a type of the same width, so that counts of elements stay valid.
DType payload_dtype_of(at::ScalarType type) {
  if (const std::optional<DType> known = find_dtype(type)) {
    return *known;
  }
  switch (c10::elementSize(type)) {
    case 1:
      return DType::kUInt8;
    case 2:
      return DType::kUInt16;
    case 4:
      return DType::kUInt32;
    case 8:
      return DType::kUInt64;
    default:
      return dtype_of(type);
  }
}

Buffer as_buffer(const at::Tensor& tensor, DType dtype, TensorAccess access) {
  if (tensor.is_conj() || tensor.is_neg()) {
    reject("tensor " + describe(tensor) +
           " is a lazy conjugate or negative: pass tensor.resolve_conj().resolve_neg()");
  }
  if (!tensor.is_contiguous()) {
    std::ostringstream text;
    text << "tensor " << describe(tensor) << " with strides " << tensor.strides()
         << " is not contiguous: pass tensor.contiguous()";
    reject(text.str());
  }
  if (tensor.is_meta()) {
    reject("tensor " + describe(tensor) +
           " is on meta, a device without memory: make the tensor on the CPU or an accelerator");
  }
  if (!tensor.device().is_cpu()) {
    return mirror_tensor(tensor, dtype, access);
  }
  return {.data = tensor.data_ptr(),
          .count = tensor.numel(),
          .dtype = dtype,
          .owner = std::make_shared<at::Tensor>(tensor)};
}

void require_dense(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    reject("the tensor is undefined (default-constructed); an operation needs memory");
  }
  if (tensor.layout() != at::kStrided) {
    reject("the tensor is sparse; operations take dense tensors: pass tensor.to_dense()");
  }
}

}  // namespace

DType dtype_of(at::ScalarType type) {
  if (const std::optional<DType> known = find_dtype(type)) {
    return *known;
  }
  reject(std::string("operations do not support tensors of type ") + c10::toString(type) +
         "; convert them with .to(dtype)");
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [theirs, ours] : kTypes) {
    if (ours == dtype) {
      return theirs;
    }
  }
  UNISONO_CHECK(false, "a DType without a ScalarType");
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "undefined tensor";
  }
  std::ostringstream text;
  const std::optional<DType> dtype = find_dtype(tensor.scalar_type());
  text << (dtype ? to_string(*dtype) : c10::toString(tensor.scalar_type())) << tensor.sizes();
  return text.str();
}

Buffer as_buffer(const at::Tensor& tensor, TensorAccess access) {
  require_dense(tensor);
  return as_buffer(tensor, dtype_of(tensor.scalar_type()), access);
}

Buffer as_operand(const at::Tensor& tensor, const char* operation, TensorAccess access) {
  try {
    return as_buffer(tensor, access);
  } catch (const Error& error) {
    throw Error(error.code(), std::string(operation) + ": " + error.what());
  }
}

Buffer as_payload(const at::Tensor& tensor, TensorAccess access) {
  require_dense(tensor);
  return as_buffer(tensor, payload_dtype_of(tensor.scalar_type()), access);
}

void bump_version(const at::Tensor& written) {
  if (!written.is_inference()) {
    written.unsafeGetTensorImpl()->bump_version();
  }
}

void all_reduce(ProcessGroup& group, const at::Tensor& in_out, const AllReduceOptions& options) {
  const RandomPause pause;
  group.all_reduce(as_operand(in_out, "all_reduce"), options);
  bump_version(in_out);
}

void all_reduce(ProcessGroup& group,
                const at::Tensor& in,
                const at::Tensor& out,
                const AllReduceOptions& options) {
  const RandomPause pause;
  group.all_reduce(as_operand(in, "all_reduce", TensorAccess::kRead),
                   as_operand(out, "all_reduce", TensorAccess::kWrite),
                   options);
  bump_version(out);
}

Work all_reduce_async(ProcessGroup& group,
                      const at::Tensor& in_out,
                      const AllReduceOptions& options) {
  const Buffer buffer = as_operand(in_out, "all_reduce");
  bump_version(in_out);
  return group.all_reduce_async(buffer, options);
}

Work all_reduce_async(ProcessGroup& group,
                      const at::Tensor& in,
                      const at::Tensor& out,
                      const AllReduceOptions& options) {
  const Buffer in_buffer = as_operand(in, "all_reduce", TensorAccess::kRead);
  const Buffer out_buffer = as_operand(out, "all_reduce", TensorAccess::kWrite);
  bump_version(out);
  return group.all_reduce_async(in_buffer, out_buffer, options);
}

namespace {

TensorAccess access_of_broadcast(const ProcessGroup& group, const BroadcastOptions& options) {
  return options.root == group.rank() ? TensorAccess::kRead : TensorAccess::kWrite;
}

}  // namespace

void broadcast(ProcessGroup& group, const at::Tensor& tensor, const BroadcastOptions& options) {
  const RandomPause pause;
  group.broadcast(as_payload(tensor, access_of_broadcast(group, options)), options);
  bump_version(tensor);
}

Work broadcast_async(ProcessGroup& group,
                     const at::Tensor& tensor,
                     const BroadcastOptions& options) {
  const Buffer buffer = as_payload(tensor, access_of_broadcast(group, options));
  bump_version(tensor);
  return group.broadcast_async(buffer, options);
}

std::vector<std::int64_t> contiguous_strides(at::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t dim = sizes.size(); dim-- > 1;) {
    strides[dim - 1] = strides[dim] * std::max<std::int64_t>(sizes[dim], 1);
  }
  return strides;
}

at::Tensor as_tensor(const Buffer& buffer,
                     std::int64_t offset,
                     at::IntArrayRef sizes,
                     at::IntArrayRef strides) {
  auto* const start = static_cast<std::byte*>(buffer.data) +
                      offset * static_cast<std::int64_t>(size_of(buffer.dtype));
  return at::for_blob(start, sizes)
      .strides(strides)
      .deleter([owner = buffer.owner](void*) {})
      .options(at::TensorOptions(scalar_type_of(buffer.dtype)))
      .make_tensor();
}

at::Tensor allocate_tensor(ProcessGroup& group, at::IntArrayRef sizes, at::ScalarType type) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      reject("allocate_tensor: a size is negative");
    }
    count *= size;
  }
  return as_tensor(
      group.allocate(count, dtype_of(type)), 0, sizes, unisono::contiguous_strides(sizes));
}

BatchTensors as_tensors(data::Batch batch) {
  std::vector<std::int64_t> sizes{batch.size()};
  sizes.insert(sizes.end(), batch.sample_shape().begin(), batch.sample_shape().end());
  // Both tensors share ownership of the batch.
  const auto shared = std::make_shared<data::Batch>(std::move(batch));
  const Buffer samples{.data = shared->bytes().data(), .dtype = shared->dtype(), .owner = shared};
  const Buffer labels{.data = shared->labels().data(), .dtype = DType::kInt64, .owner = shared};
  BatchTensors tensors{.samples = as_tensor(samples, 0, sizes, unisono::contiguous_strides(sizes)),
                       .labels = as_tensor(labels, 0, {shared->size()}, {1})};
  if (shared->pin_memory() && has_accelerator()) {
    return {.samples = tensors.samples.pin_memory(), .labels = tensors.labels.pin_memory()};
  }
  return tensors;
}

}  // namespace unisono
