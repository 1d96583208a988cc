#include "unisono/data/random.h"

#include <array>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(Random, GivesThePublishedNumbers) {
  data::Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317U);
  EXPECT_EQ(random.next(), 3203168211198807973U);
  EXPECT_EQ(random.next(), 9817491932198370423U);
  EXPECT_EQ(random.next(), 4593380528125082431U);
}

TEST(Random, IsAnotherForEachSeedEpochAndIndex) {
  std::set<std::uint64_t> seen;
  for (std::int64_t seed = -3; seed < 3; ++seed) {
    for (std::int64_t epoch = 0; epoch < 10; ++epoch) {
      for (std::int64_t index = 0; index < 100; ++index) {
        seen.insert(data::Random::of_sample(seed, epoch, index).next());
      }
    }
  }
  EXPECT_EQ(seen.size(), 6000U);
  EXPECT_EQ(data::Random::of_sample(1, 2, 3).next(), data::Random::of_sample(1, 2, 3).next());
}

TEST(Random, BelowGivesEachNumberEquallyOften) {
  data::Random random(7);
  std::array<int, 6> counts{};
  for (int draw = 0; draw < 60'000; ++draw) {
    ++counts.at(random.below(6));
  }
  EXPECT_THAT(counts, ::testing::Each(::testing::AllOf(::testing::Gt(9500), ::testing::Lt(10500))));
  EXPECT_EQ(random.below(1), 0U);
}

TEST(Random, BelowIsEvenForLargeLimits) {
  constexpr std::uint64_t kQuarter = std::uint64_t{1} << 62;
  data::Random random(1);
  int n_in_first_third = 0;
  for (int draw = 0; draw < 9'000; ++draw) {
    n_in_first_third += random.below(3 * kQuarter) < kQuarter ? 1 : 0;
  }
  EXPECT_NEAR(n_in_first_third, 3'000, 200);
}

TEST(Random, UniformStaysBelowOne) {
  data::Random random(0);
  double sum = 0;
  for (int draw = 0; draw < 10'000; ++draw) {
    const double value = random.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

}  // namespace
}  // namespace unisono
