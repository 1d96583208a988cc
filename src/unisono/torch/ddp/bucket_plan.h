#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"

namespace unisono::ddp {

/// Size and type of a parameter's gradient, for the layout of buckets.
struct GradientSpec {
  std::int64_t n_elems;
  DType dtype;
};

/// Size limits of buckets in bytes. The gradient that reaches the limit is the last of its bucket,
/// so a bucket may be larger than the limit.
struct BucketCaps {
  /// Limit of the first bucket of each dtype. Small, so that communication starts early in
  /// backward.
  std::int64_t first_bytes = std::int64_t{1} << 20;
  std::int64_t bytes = std::int64_t{25} << 20;
};

/// Position of a parameter's gradient in a bucket.
struct BucketSlot {
  std::size_t parameter;
  std::int64_t offset;  ///< Elements from the bucket's start; a multiple of 64 bytes.
};

/// Layout of one bucket.
struct BucketLayout {
  DType dtype;
  std::vector<BucketSlot> slots;
  std::int64_t n_elems;  ///< Number of elements, including the padding between slots.
};

/// Layout of all buckets, in the order in which the buckets are reduced.
struct BucketPlan {
  std::vector<BucketLayout> buckets;
  /// Where the last bucket's kFlagBits elements begin that carry no gradient (see pass_flags.h).
  std::int64_t flags_offset = 0;
  /// Where the first bucket's elements for votes begin (see weighted_samples.h), if there are any.
  std::int64_t votes_offset = 0;
};

/// Returns the numbers 0 .. n_parameters - 1 in descending order: the order of gradients in
/// backward for most models.
[[nodiscard]] std::vector<std::size_t> reverse_order(std::size_t n_parameters);

/// Cuts the gradients, taken in `order`, into buckets; each bucket has a single dtype. Buckets are
/// sorted by the position of the first gradient of each bucket in `order`. The first bucket has
/// room for `n_votes` additional elements.
///
/// Throws Error(kInternal) unless `order` is a permutation of at least one parameter.
[[nodiscard]] BucketPlan plan_buckets(std::span<const GradientSpec> gradients,
                                      std::span<const std::size_t> order,
                                      const BucketCaps& caps,
                                      std::int64_t n_votes = 0);

}  // namespace unisono::ddp
