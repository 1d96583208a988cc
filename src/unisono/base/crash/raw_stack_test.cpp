#include "unisono/base/crash/raw_stack.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::crash {
namespace {

// The frames that are shown of a stack of so many.
std::vector<std::size_t> shown(std::size_t n_frames) {
  RawStack stack;
  for (std::size_t frame = 0; frame < n_frames; ++frame) {
    stack.add(1000 + frame);
  }
  std::vector<std::size_t> frames;
  for (std::size_t frame = 0; frame < stack.n_frames(); frame = stack.next(frame)) {
    EXPECT_EQ(stack.address(frame), 1000 + frame);
    frames.push_back(frame);
  }
  EXPECT_EQ(frames.size() + stack.n_left_out(), n_frames);
  return frames;
}

TEST(RawStack, KeepsBothEnds) {
  constexpr std::size_t kMost = RawStack::kInner + RawStack::kOuter;
  for (const std::size_t n_frames : std::vector<std::size_t>{
           0, 1, RawStack::kInner, RawStack::kInner + 1, kMost, kMost + 1, 1000}) {
    const std::vector<std::size_t> frames = shown(n_frames);
    EXPECT_EQ(frames.size(), n_frames < kMost ? n_frames : kMost);
    if (n_frames > 0) {
      EXPECT_EQ(frames.front(), 0U);
      EXPECT_EQ(frames.back(), n_frames - 1);
    }
  }
}

}  // namespace
}  // namespace unisono::crash
