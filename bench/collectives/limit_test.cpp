#include "limit.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace bench {
namespace {

constexpr std::size_t kAlignment = 64;

struct Free {
  void operator()(float* data) const { ::operator delete(data, std::align_val_t(kAlignment)); }
};

using Floats = std::unique_ptr<float, Free>;

Floats allocate(std::int64_t count) {
  const std::size_t n_bytes = static_cast<std::size_t>(count) * sizeof(float);
  return Floats(static_cast<float*>(::operator new(n_bytes, std::align_val_t(kAlignment))));
}

// A kernel that does only part of the work would not be a limit.
TEST(Limit, BothRanksGetTheSums) {
  auto memory = std::make_unique<LimitMemory>();
  LimitRank rank_0(*memory, 0);
  LimitRank rank_1(*memory, 1);
  // Sizes around the limits of a slot and of a cache line.
  for (const std::int64_t count : {0, 1, 13, 14, 15, 16, 17, 33, 1000, 100003}) {
    const Floats first = allocate(count);
    const Floats second = allocate(count);
    for (std::int64_t i = 0; i < count; ++i) {
      first.get()[i] = static_cast<float>(i);
      second.get()[i] = static_cast<float>(3 * i + 1);
    }
    std::thread other([&] { rank_1.all_reduce(second.get(), first.get(), count); });
    rank_0.all_reduce(first.get(), second.get(), count);
    other.join();
    for (std::int64_t i = 0; i < count; ++i) {
      const float sum = static_cast<float>(i) + static_cast<float>(3 * i + 1);
      ASSERT_EQ(first.get()[i], sum) << i << " of " << count;
      ASSERT_EQ(second.get()[i], sum) << i << " of " << count;
    }
  }
}

TEST(Limit, TheLargestOfManyValuesReachesBoth) {
  auto memory = std::make_unique<LimitMemory>();
  std::vector<double> first(3000);
  std::vector<double> second(3000);
  for (std::size_t i = 0; i < first.size(); ++i) {
    first[i] = static_cast<double>(i);
    second[i] = 1500;
  }
  std::thread other([&] { LimitRank(*memory, 1).max_of_ranks(second); });
  LimitRank(*memory, 0).max_of_ranks(first);
  other.join();
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.front(), 1500);
  EXPECT_EQ(first.back(), 2999);
}

}  // namespace
}  // namespace bench
