#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "unisono/checkpoint/element_type.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {

/// Bytes to copy from one box's memory into another's, as many runs of equal length.
struct StridedCopy {
  struct Axis {
    std::int64_t count;
    std::uint64_t source_stride;  ///< Bytes.
    std::uint64_t target_stride;  ///< Bytes.
  };

  std::uint64_t source_offset = 0;  ///< Bytes from the source's start.
  std::uint64_t target_offset = 0;
  std::uint64_t run_bytes = 0;
  std::vector<Axis> axes = {};  ///< From the outermost; empty for a single run.
};

/// Calls `action(source offset, target offset)` for each run, in the order of memory.
void for_each_run(const StridedCopy& copy,
                  const std::function<void(std::uint64_t, std::uint64_t)>& action);

/// What a wanted box gets from one stored box of the same tensor.
struct PlannedCopy {
  std::size_t stored;  ///< Index into the stored boxes.
  StridedCopy copy;
};

/// Which bytes of which stored boxes make up the wanted one. Each box's memory is row-major and
/// holds the box alone. Stored boxes overlap nowhere: see find_overlap().
///
/// The cost grows with the number of stored boxes and of axes, not with the tensor's size. Pieces
/// that no stored box has are left out: compare n_elems with the wanted box's.
struct CopyPlan {
  std::vector<PlannedCopy> copies;
  std::int64_t n_elems = 0;
  /// False where a piece of elements of 4 or 6 bits begins or ends within a byte: then the copies
  /// are of no use.
  bool is_of_whole_bytes = true;
};

[[nodiscard]] CopyPlan plan_copies(std::span<const Box> stored,
                                   const Box& wanted,
                                   ElementType dtype);

/// The first two of the boxes that have an element in common; equal numbers if none do. In time
/// n log n where the boxes differ along one axis only, else n squared.
struct BoxPair {
  std::size_t first;
  std::size_t second;
};

[[nodiscard]] BoxPair find_overlap(std::span<const Box> boxes);

}  // namespace unisono::checkpoint
