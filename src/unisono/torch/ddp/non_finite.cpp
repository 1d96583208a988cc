#include "unisono/torch/ddp/non_finite.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/objects.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/all_finite.h"

namespace unisono::ddp {
namespace {

constexpr std::uint16_t kHalfExponent = 0x7C00;
constexpr std::uint16_t kBrainExponent = 0x7F80;

template <class T>
std::span<const T> numbers_of(const at::Tensor& tensor) {
  return {static_cast<const T*>(tensor.const_data_ptr()), tensor.nbytes() / sizeof(T)};
}

}  // namespace

bool is_finite(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) {
    return true;
  }
  switch (tensor.scalar_type()) {
    case at::kHalf:
      return are_all_finite(numbers_of<std::uint16_t>(tensor), kHalfExponent);
    case at::kBFloat16:
      return are_all_finite(numbers_of<std::uint16_t>(tensor), kBrainExponent);
    case at::kFloat:
    case at::kComplexFloat:
      return are_all_finite(numbers_of<float>(tensor));
    case at::kDouble:
    case at::kComplexDouble:
      return are_all_finite(numbers_of<double>(tensor));
    default:
      return true;
  }
}

std::string describe_non_finite(ProcessGroup& group,
                                const std::string& own,
                                std::optional<std::chrono::milliseconds> timeout) {
  const std::vector<std::string> names = all_gather_object(group, own, {.timeout = timeout});
  std::string text;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    if (!names[rank].empty()) {
      text +=
          (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " in '" + names[rank] + "'";
    }
  }
  return text;
}

}  // namespace unisono::ddp
