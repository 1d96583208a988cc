#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {

/// A copy from one box's memory to another's, as a number of runs of equal length.
struct StridedCopy {
  struct Axis {
    std::int64_t count;
    std::uint64_t source_stride;  ///< Distance in bytes.
    std::uint64_t target_stride;  ///< Distance in bytes.
  };

  std::uint64_t source_offset = 0;  ///< Bytes from the beginning of the source.
  std::uint64_t target_offset = 0;
  std::uint64_t run_bytes = 0;
  std::vector<Axis> axes = {};  ///< Outermost axis first; empty for a single run.
};

/// Calls `action(source offset, target offset)` for each run, in the order of memory.
void for_each_run(const StridedCopy& copy,
                  const std::function<void(std::uint64_t, std::uint64_t)>& action);

/// The data that a wanted box gets from one stored box of the same tensor.
struct PlannedCopy {
  std::size_t stored;  ///< Index into the stored boxes.
  StridedCopy copy;
};

/// The copies from stored boxes that fill a wanted box. The memory of each box is row-major and
/// contains only that box. Stored boxes must not overlap: see find_overlap().
///
/// The cost grows with the number of stored boxes and axes, not with the tensor's size. Parts that
/// no stored box contains are omitted: compare n_elems with the size of the wanted box.
struct CopyPlan {
  std::vector<PlannedCopy> copies;
  std::int64_t n_elems = 0;
  /// False if a part with elements of 4 or 6 bits begins or ends inside a byte. The copies are then
  /// invalid.
  bool is_of_whole_bytes = true;
};

/// Returns the copies from the boxes `stored` that fill the box `wanted`.
[[nodiscard]] CopyPlan plan_copies(std::span<const Box> stored,
                                   const Box& wanted,
                                   ElementType dtype);

/// Indices of two boxes.
struct BoxPair {
  std::size_t first;
  std::size_t second;
};

/// Returns the first two boxes with a common element; equal indices if no boxes overlap. The search
/// takes time n log n if the boxes differ along a single axis, otherwise n squared.
[[nodiscard]] BoxPair find_overlap(std::span<const Box> boxes);

}  // namespace unisono::checkpoint
