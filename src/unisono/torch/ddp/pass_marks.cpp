#include "unisono/torch/ddp/pass_marks.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/real.h>

namespace unisono::ddp {
namespace {

using Numbers = std::array<double, static_cast<std::size_t>(kMarkElems)>;

// Means over the ranks tell whether any, of up to 5000, has given up, in any type of gradients.
constexpr double kLeastGivenUp = 2;

constexpr std::int64_t kLacking = kMarkElems - 1;

double number_of(PassStatus status) {
  switch (status) {
    case PassStatus::kGood:
      return 0;
    case PassStatus::kNonFinite:
      return 1;
    case PassStatus::kGivenUp:
      return 1e4;
  }
  return 0;
}

at::Tensor as_tensor(Numbers& numbers) {
  return at::from_blob(numbers.data(), {kMarkElems}, at::kDouble);
}

}  // namespace

void write_marks(const at::Tensor& elements, const PassMarks& marks, double weight) {
  Numbers numbers{number_of(marks.status) * weight};
  if (marks.fingerprint) {
    // A place for a bit that is 0 and one for a bit that is 1: where both are taken, ranks differ.
    for (std::size_t bit = 0; bit < 16; ++bit) {
      const std::size_t value = (*marks.fingerprint >> bit) & 1U;
      numbers[1 + (2 * bit) + value] = weight;
    }
  }
  numbers[static_cast<std::size_t>(kLacking)] = marks.lacks_gradients ? weight : 0;
  elements.copy_(as_tensor(numbers));
}

PassStatus read_status(const at::Tensor& elements) {
  const double mean = elements[0].item().toDouble();
  if (mean == 0) {
    return PassStatus::kGood;
  }
  return mean < kLeastGivenUp ? PassStatus::kNonFinite : PassStatus::kGivenUp;
}

bool do_fingerprints_differ(const at::Tensor& elements) {
  Numbers numbers{};
  as_tensor(numbers).copy_(elements.is_complex() ? at::real(elements) : elements);
  for (std::size_t bit = 0; bit < 16; ++bit) {
    if (numbers[1 + (2 * bit)] != 0 && numbers[2 + (2 * bit)] != 0) {
      return true;
    }
  }
  return false;
}

bool is_any_lacking(const at::Tensor& elements) {
  return elements[kLacking].item().toDouble() != 0;
}

}  // namespace unisono::ddp
