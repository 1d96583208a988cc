#include "unisono/checkpoint/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace unisono::checkpoint {
namespace {

using Runs = std::function<void(std::uint64_t, std::uint64_t)>;

constexpr std::uint64_t kByteBits = 8;

// Returns the distance in bits between neighboring elements along each axis.
std::vector<std::uint64_t> strides_of(const Box& box, std::uint64_t item_bits) {
  std::vector<std::uint64_t> strides(box.sizes.size());
  for (std::size_t axis = strides.size(); axis-- > 0;) {
    strides[axis] = item_bits;
    item_bits *= static_cast<std::uint64_t>(box.sizes[axis]);
  }
  return strides;
}

// Returns a copy with offsets, strides and run length in bits.
StridedCopy copy_of(const Box& common,
                    const Box& source,
                    const Box& target,
                    std::uint64_t item_bits) {
  const std::vector<std::uint64_t> source_strides = strides_of(source, item_bits);
  const std::vector<std::uint64_t> target_strides = strides_of(target, item_bits);
  StridedCopy copy{.run_bytes = item_bits};
  // A run extends over each axis that both boxes contain completely, and ends after the first other
  // axis.
  bool is_run = true;
  for (std::size_t axis = common.sizes.size(); axis-- > 0;) {
    copy.source_offset += static_cast<std::uint64_t>(common.offsets[axis] - source.offsets[axis]) *
                          source_strides[axis];
    copy.target_offset += static_cast<std::uint64_t>(common.offsets[axis] - target.offsets[axis]) *
                          target_strides[axis];
    if (is_run) {
      copy.run_bytes *= static_cast<std::uint64_t>(common.sizes[axis]);
      is_run = common.sizes[axis] == source.sizes[axis] && common.sizes[axis] == target.sizes[axis];
    } else if (common.sizes[axis] > 1) {
      copy.axes.insert(copy.axes.begin(),
                       {.count = common.sizes[axis],
                        .source_stride = source_strides[axis],
                        .target_stride = target_strides[axis]});
    }
  }
  return copy;
}

// Converts bits to bytes. Returns false if a value is not a multiple of 8 bits.
bool to_bytes(StridedCopy& copy) {
  bool is_whole = true;
  const auto divide = [&](std::uint64_t& bits) {
    is_whole = is_whole && bits % kByteBits == 0;
    bits /= kByteBits;
  };
  divide(copy.source_offset);
  divide(copy.target_offset);
  divide(copy.run_bytes);
  for (StridedCopy::Axis& axis : copy.axes) {
    divide(axis.source_stride);
    divide(axis.target_stride);
  }
  return is_whole;
}

// Iterates over `axes`, the outermost axis first.
void run_axes(std::span<const StridedCopy::Axis> axes,
              std::uint64_t source,
              std::uint64_t target,
              const Runs& action) {
  if (axes.empty()) {
    action(source, target);
    return;
  }
  for (std::int64_t i = 0; i < axes[0].count; ++i) {
    run_axes(axes.subspan(1), source, target, action);
    source += axes[0].source_stride;
    target += axes[0].target_stride;
  }
}

// Returns the axis along which the boxes differ, std::nullopt if they differ along several axes.
// Returns the first axis for equal boxes.
std::optional<std::size_t> only_axis(std::span<const Box> boxes) {
  std::optional<std::size_t> found;
  const Box& first = boxes[0];
  for (std::size_t axis = 0; axis < first.sizes.size(); ++axis) {
    const bool differs = std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) {
      return box.offsets[axis] != first.offsets[axis] || box.sizes[axis] != first.sizes[axis];
    });
    if (differs && found) {
      return std::nullopt;
    }
    if (differs) {
      found = axis;
    }
  }
  return found.value_or(0);
}

BoxPair overlap_along(std::span<const Box> boxes, std::size_t axis) {
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(boxes[a].offsets[axis], a) < std::pair(boxes[b].offsets[axis], b);
  });
  // An empty box overlaps no other box, and must not hide the preceding box.
  std::optional<std::size_t> before;
  for (const std::size_t next : order) {
    if (count_elements(boxes[next].sizes) == 0) {
      continue;
    }
    if (before && intersect(boxes[*before], boxes[next])) {
      return {.first = std::min(*before, next), .second = std::max(*before, next)};
    }
    before = next;
  }
  return {.first = 0, .second = 0};
}

}  // namespace

void for_each_run(const StridedCopy& copy, const Runs& action) {
  run_axes(copy.axes, copy.source_offset, copy.target_offset, action);
}

CopyPlan plan_copies(std::span<const Box> stored, const Box& wanted, ElementType dtype) {
  CopyPlan plan;
  const auto item_bits = static_cast<std::uint64_t>(dtype.n_bits());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (const std::optional<Box> common = intersect(stored[i], wanted)) {
      StridedCopy copy = copy_of(*common, stored[i], wanted, item_bits);
      plan.is_of_whole_bytes = to_bytes(copy) && plan.is_of_whole_bytes;
      plan.copies.push_back({.stored = i, .copy = std::move(copy)});
      plan.n_elems += count_elements(common->sizes).value_or(0);
    }
  }
  return plan;
}

BoxPair find_overlap(std::span<const Box> boxes) {
  if (boxes.size() < 2) {
    return {.first = 0, .second = 0};
  }
  if (const std::optional<std::size_t> axis = only_axis(boxes); axis && !boxes[0].sizes.empty()) {
    return overlap_along(boxes, *axis);
  }
  for (std::size_t second = 1; second < boxes.size(); ++second) {
    for (std::size_t first = 0; first < second; ++first) {
      if (intersect(boxes[first], boxes[second])) {
        return {.first = first, .second = second};
      }
    }
  }
  return {.first = 0, .second = 0};
}

}  // namespace unisono::checkpoint
