#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// How a rank's pass went, as the others learn it from the last bucket.
enum class PassStatus : std::uint8_t { kGood, kNonFinite, kGivenUp };

/// What a rank tells the others of a pass.
struct PassMarks {
  PassStatus status = PassStatus::kGood;
  /// Of (a part of) its parameters; nothing from ranks whose parameters may be others.
  std::optional<std::uint16_t> fingerprint = {};
  /// Of parameters that the options want to be used in each pass.
  bool lacks_gradients = false;
};

/// Numbers at the end of the last bucket that carry no gradient. They are summed or averaged with
/// it, in whatever type it has: so each tells only whether it is 0 on all ranks, save the first.
inline constexpr std::int64_t kMarkElems = 1 + 2 * 16 + 1;

/// `weight`: what a sum over the ranks lacks to be their mean.
void write_marks(const at::Tensor& elements, const PassMarks& marks, double weight);

/// Of the mean: the worst of all ranks'.
[[nodiscard]] PassStatus read_status(const at::Tensor& elements);

/// Whether two of the ranks' fingerprints differ.
[[nodiscard]] bool do_fingerprints_differ(const at::Tensor& elements);

/// Whether any rank lacks gradients.
[[nodiscard]] bool is_any_lacking(const at::Tensor& elements);

}  // namespace unisono::ddp
