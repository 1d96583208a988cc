#include "unisono/base/spin.h"

#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(SpinLimit, FallsToTheLeastWhereAYieldBringsThePeers) {
  SpinLimit limit;
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost);
  limit.note_yielded(1);
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost / 2);
  for (int n = 0; n < 20; ++n) {
    limit.note_yielded(1);
  }
  EXPECT_EQ(limit.n_spins(), SpinLimit::kLeast);
}

TEST(SpinLimit, RisesWhereYieldsDoNotBringThem) {
  for (const int n_yields : {0, 100}) {
    SpinLimit limit;
    limit.note_yielded(1);
    limit.note_yielded(n_yields);
    EXPECT_EQ(limit.n_spins(), SpinLimit::kMost);
  }
}

TEST(SpinLimit, RisesToTheMostWhereSpinningDoes) {
  SpinLimit limit;
  for (int n = 0; n < 20; ++n) {
    limit.note_yielded(1);
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
