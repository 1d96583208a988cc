#include "unisono/kernels/targets.h"

#include <gtest/gtest.h>

// clang-format off: the order matters to Highway
#include <hwy/targets.h>
// clang-format on

namespace unisono::kernels {
namespace {

TEST(InstructionSets, AreThoseThatHighwayFinds) {
  EXPECT_EQ(supported_targets(), hwy::SupportedTargets() & HWY_TARGETS & ~HWY_SCALAR & ~HWY_EMU128);
}

TEST(InstructionSets, CanBeRestricted) {
  restrict_targets(HWY_STATIC_TARGET);
  EXPECT_EQ(usable_targets(), HWY_STATIC_TARGET);
  restrict_targets(0);
  EXPECT_EQ(usable_targets(), supported_targets());
}

}  // namespace
}  // namespace unisono::kernels
