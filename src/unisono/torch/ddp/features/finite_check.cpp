#include "unisono/torch/ddp/features/finite_check.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

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

bool can_be_infinite(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

// Returns the largest absolute value as a tensor on the device: NaN if an element is NaN. A single
// kernel.
at::Tensor largest_of(const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.is_complex() ? at::view_as_real(tensor) : tensor;
  return numbers.numel() == 0
             ? at::zeros({}, numbers.options())
             : at::linalg_vector_norm(numbers, std::numeric_limits<double>::infinity());
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
  if (!values.is_cpu()) {
    if (can_be_infinite(values)) {
      on_device_.push_back({.parameter = parameter, .value = largest_of(values)});
      streams_.add_current(values.device());
    }
    return;
  }
  if (!is_finite(values.is_non_overlapping_and_dense() ? values : values.contiguous())) {
    found_ = context_.parameters[parameter].name;
  }
}

PassFlags FiniteCheck::flags() {
  std::vector<at::Tensor> values;
  for (const Largest& largest : on_device_) {
    streams_.make_current_wait(largest.value.device());
    values.push_back(largest.value.to(at::kDouble));
  }
  if (!values.empty()) {
    const at::Tensor are_finite = at::stack(values).isfinite().cpu();
    const std::span<const bool> of_gradients(are_finite.const_data_ptr<bool>(), values.size());
    const auto first = std::ranges::find(of_gradients, false);
    if (found_.empty() && first != of_gradients.end()) {
      const auto place = static_cast<std::size_t>(first - of_gradients.begin());
      found_ = context_.parameters[on_device_[place].parameter].name;
    }
    on_device_.clear();
  }
  return found_.empty() ? 0 : 1;
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
