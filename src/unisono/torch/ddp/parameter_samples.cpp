#include "unisono/torch/ddp/parameter_samples.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "unisono/torch/tensor/hash.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {
namespace {

std::size_t n_bytes_of(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor.nbytes() : 0;
}

}  // namespace

std::uint16_t ParameterSamples::take() {
  std::size_t n_bytes = 0;
  for (const NamedTensor& parameter : parameters_) {
    n_bytes += n_bytes_of(parameter.tensor);
  }
  const std::size_t part_bytes = std::max(kLeastBytes, (n_bytes + kParts - 1) / kParts);
  const std::size_t n_parts = std::max<std::size_t>(1, (n_bytes + part_bytes - 1) / part_bytes);
  const std::size_t begin = (n_taken_ % n_parts) * part_bytes;
  const std::size_t end = begin + part_bytes;

  // Another seed every time: parts that are equal by chance are not the next time.
  std::uint64_t hash = n_taken_;
  std::size_t offset = 0;
  for (const NamedTensor& parameter : parameters_) {
    const std::size_t size = n_bytes_of(parameter.tensor);
    const std::size_t from = std::clamp(begin, offset, offset + size) - offset;
    const std::size_t to = std::clamp(end, offset, offset + size) - offset;
    if (from < to) {
      const auto* const bytes = static_cast<const std::byte*>(parameter.tensor.const_data_ptr());
      hash = hash_bytes(std::span(bytes + from, to - from), hash);
    }
    offset += size;
  }
  skip();
  return static_cast<std::uint16_t>(hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48));
}

}  // namespace unisono::ddp
