#include "unisono/torch/tensor/parameter_hash.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/torch/tensor/hash.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {

std::uint64_t hash_tensors(const std::vector<at::Tensor>& tensors) {
  std::uint64_t hash = 0;
  for (const at::Tensor& tensor : distinct_tensors(tensors)) {
    const std::string description = describe(tensor);
    hash = hash_bytes(std::as_bytes(std::span(description)), hash);
    if (tensor.defined()) {
      const at::Tensor elements = tensor.contiguous();
      const auto* const start = static_cast<const std::byte*>(elements.const_data_ptr());
      hash = hash_bytes(std::span(start, elements.nbytes()), hash);
    }
  }
  return hash;
}

std::string format_hash(std::uint64_t hash) {
  std::array<char, 16> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  const std::string text(digits.data(), end);
  return std::string(digits.size() - text.size(), '0') + text;
}

}  // namespace unisono
