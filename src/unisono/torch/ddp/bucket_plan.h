#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"

namespace unisono::ddp {

/// What a parameter's gradient needs of a bucket.
struct GradientSpec {
  std::int64_t n_elems;
  DType dtype;
};

/// A bucket is closed by the gradient that brings it to its cap, so it may be larger than that.
struct BucketCaps {
  /// Of the first bucket of each dtype: small, so that communication starts early in backward.
  std::int64_t first_bytes = std::int64_t{1} << 20;
  std::int64_t bytes = std::int64_t{25} << 20;
};

/// Where a parameter's gradient lies in its bucket.
struct BucketSlot {
  std::size_t parameter;
  std::int64_t offset;  ///< Elements from the bucket's start; its bytes are a multiple of 64.
};

struct BucketLayout {
  DType dtype;
  std::vector<BucketSlot> slots;
  std::int64_t n_elems;  ///< Slots and the padding between them.
};

struct BucketPlan {
  std::vector<BucketLayout> buckets;
  /// Where the last bucket's kMarkElems begin that carry no gradient (see pass_marks.h).
  std::int64_t marks_offset = 0;
  /// Where the first bucket's elements for votes begin (see sample_votes.h), if there are any.
  std::int64_t votes_offset = 0;
};

/// Numbers 0 .. n_parameters - 1 from the last to the first: backward's order in most models.
[[nodiscard]] std::vector<std::size_t> reverse_order(std::size_t n_parameters);

/// Cuts the gradients, taken in `order`, into buckets of one dtype each. Buckets are sorted by
/// their first gradient's place in `order`. The first has room for `n_votes`.
///
/// Throws Error(kInternal) unless `order` holds each parameter once and there is one at least.
[[nodiscard]] BucketPlan plan_buckets(std::span<const GradientSpec> gradients,
                                      std::span<const std::size_t> order,
                                      const BucketCaps& caps,
                                      std::int64_t n_votes = 0);

}  // namespace unisono::ddp
