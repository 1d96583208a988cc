#include "unisono/torch/ddp/features/finite_check.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/comm/objects.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono::ddp {
namespace {

// Elements per block. The loop over a block has no early exit, so that the compiler vectorizes the
// loop; the scan may end early between blocks.
constexpr std::size_t kBlock = 4096;

template <class Number, class Bits>
bool are_finite(std::span<const Number> numbers, Bits exponent) {
  for (std::size_t start = 0; start < numbers.size(); start += kBlock) {
    const std::span<const Number> block =
        numbers.subspan(start, std::min(kBlock, numbers.size() - start));
    Bits found = 0;
    for (const Number number : block) {
      found |= static_cast<Bits>((std::bit_cast<Bits>(number) & exponent) == exponent);
    }
    if (found != 0) {
      return false;
    }
  }
  return true;
}

constexpr std::uint16_t kHalfExponent = 0x7C00;
constexpr std::uint16_t kBrainExponent = 0x7F80;

template <class T>
std::span<const T> numbers_of(const at::Tensor& tensor) {
  return {static_cast<const T*>(tensor.const_data_ptr()), tensor.nbytes() / sizeof(T)};
}

// Of a sparse tensor it is not known, and true.
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

// A collective operation. Returns a description of the ranks with non-finite gradients, such as
// "rank 1 in 'fc.weight'". `own` names this rank's parameter, and is empty if the rank's gradients
// are finite.
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

}  // namespace

bool are_all_finite(std::span<const std::uint16_t> bits, std::uint16_t exponent) {
  return are_finite(bits, exponent);
}

bool are_all_finite(std::span<const float> numbers) {
  return are_finite(numbers, std::uint32_t{0x7F800000});
}

bool are_all_finite(std::span<const double> numbers) {
  return are_finite(numbers, std::uint64_t{0x7FF0000000000000});
}

void FiniteCheck::inspect(std::size_t parameter, const at::Tensor& gradient) {
  if (!found_.empty() || !gradient.defined()) {
    return;
  }
  const at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
  if (!is_finite(values.is_non_overlapping_and_dense() ? values : values.contiguous())) {
    found_ = context_.parameters[parameter].name;
  }
}

void FiniteCheck::end_pass(PassResult& result) {
  if (result.flags == 0) {
    return;
  }
  result.is_dropped = true;
  if (result.takes_gradients) {
    context_.drop_gradients();
  }
  const std::string where =
      describe_non_finite(*context_.group, std::exchange(found_, {}), context_.options.timeout);
  const bool is_thrown = policy_ == NonFiniteGradients::kThrow;
  if (result.is_shadow) {
    result.is_over = is_thrown;
    return;
  }
  const std::string message = "DistributedDataParallel: gradients of pass " +
                              std::to_string(context_.n_passes) +
                              " have an infinity or NaN: " + where;
  if (is_thrown) {
    throw Error(ErrorCode::kInvalidArgument,
                "[rank " + std::to_string(context_.group->rank()) + "] " + message);
  }
  ++n_skipped_;
  if (context_.group->rank() == 0) {
    base::Logger("rank 0").warning(message + "; the step is left out");
  }
}

}  // namespace unisono::ddp
