#include "unisono/base/spin.h"

#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(SpinLimit, FallsToTheLeastWhereYieldingBringsThePeers) {
  SpinLimit limit;
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost);
  limit.note_yielded();
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost / 2);
  for (int n = 0; n < 20; ++n) {
    limit.note_yielded();
  }
  EXPECT_EQ(limit.n_spins(), SpinLimit::kLeast);
}

TEST(SpinLimit, RisesToTheMostWhereSpinningDoes) {
  SpinLimit limit;
  for (int n = 0; n < 20; ++n) {
    limit.note_yielded();
  }
  limit.note_spun();
  EXPECT_EQ(limit.n_spins(), 2 * SpinLimit::kLeast);
  for (int n = 0; n < 20; ++n) {
    limit.note_spun();
  }
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost);
}

}  // namespace
}  // namespace unisono
