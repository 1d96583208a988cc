#include "unisono/data/samplers/data_partitioner.h"

#include <algorithm>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/samplers/share.h"

#include "support/throws_error.h"

namespace unisono {
namespace {

using data::python_permutation;
using test::CaughtError;
using test::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

const base::Logger kQuiet("test", LogLevel::kError);

DataPartitioner quiet(std::int64_t size,
                      const std::vector<double>& fractions,
                      const DataPartitionerOptions& options = {}) {
  return {size, fractions, options, kQuiet};
}

std::vector<std::size_t> sizes_of(const DataPartitioner& partitioner) {
  std::vector<std::size_t> sizes;
  for (int part = 0; part < partitioner.size(); ++part) {
    sizes.push_back(partitioner.use(part).size());
  }
  return sizes;
}

Indices all_parts(const DataPartitioner& partitioner) {
  Indices all;
  for (int part = 0; part < partitioner.size(); ++part) {
    const std::span<const std::int64_t> indices = partitioner.use(part);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return all;
}

// Output of CPython 3.11 for: r = random.Random(); r.seed(SEED); x = list(range(10)); r.shuffle(x);
// print(x). tests/parity compares more cases with the installed Python.
TEST(PythonPermutation, EqualsCPythons) {
  EXPECT_THAT(python_permutation(10, 1234), ElementsAre(2, 8, 3, 5, 6, 4, 9, 0, 1, 7));
  EXPECT_THAT(python_permutation(10, -1234), ElementsAre(2, 8, 3, 5, 6, 4, 9, 0, 1, 7));
  EXPECT_THAT(python_permutation(10, 0), ElementsAre(7, 8, 1, 5, 3, 4, 2, 0, 9, 6));
  EXPECT_THAT(python_permutation(10, (std::int64_t{1} << 32) + 5),
              ElementsAre(5, 3, 6, 1, 9, 0, 8, 4, 7, 2));
  EXPECT_THAT(python_permutation(10, std::numeric_limits<std::int64_t>::max()),
              ElementsAre(4, 1, 9, 8, 6, 0, 3, 7, 2, 5));
  EXPECT_THAT(python_permutation(10, std::numeric_limits<std::int64_t>::min()),
              ElementsAre(5, 7, 9, 2, 0, 4, 1, 3, 6, 8));
}

TEST(PythonPermutation, MnistsSizeEqualsCPythons) {
  const Indices order = python_permutation(60'000, 1234);
  EXPECT_THAT(Indices(order.begin(), order.begin() + 4), ElementsAre(33712, 36159, 45528, 25849));
  EXPECT_THAT(Indices(order.end() - 3, order.end()), ElementsAre(7657, 28883, 50997));
}

TEST(PythonPermutation, OfFewNumbers) {
  EXPECT_THAT(python_permutation(0, 1), ElementsAre());
  EXPECT_THAT(python_permutation(1, 5), ElementsAre(0));
  EXPECT_THAT(python_permutation(2, 5), ElementsAre(0, 1));
}

TEST(DataPartitioner, PartsOfTheTutorial) {
  const DataPartitioner partitioner(60'000);
  EXPECT_THAT(sizes_of(partitioner), ElementsAre(42'000, 12'000, 6'000));
  EXPECT_EQ(partitioner.use(0)[0], 33712);
  EXPECT_EQ(all_parts(partitioner), python_permutation(60'000, 1234));
}

TEST(DataPartitioner, TwoRanksGetHalfEach) {
  const DataPartitioner partitioner(60'000, {0.5, 0.5});
  EXPECT_THAT(sizes_of(partitioner), ElementsAre(30'000, 30'000));
}

TEST(DataPartitioner, PartsAreDisjoint) {
  for (const int n_parts : {1, 3, 7, 49}) {
    const DataPartitioner partitioner =
        quiet(1000, std::vector<double>(static_cast<std::size_t>(n_parts), 1.0 / n_parts));
    Indices all = all_parts(partitioner);
    std::ranges::sort(all);
    EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
    EXPECT_EQ(static_cast<std::int64_t>(all.size()), 1000 - partitioner.n_left_over());
  }
}

TEST(DataPartitioner, WarnsOfSamplesThatNoPartHas) {
  ::testing::internal::CaptureStderr();
  const DataPartitioner partitioner(60'000, std::vector<double>(7, 1.0 / 7));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning: DataPartitioner: 3 of 60000 samples are in none of the 7"),
                    HasSubstr("spread_rest")));
  EXPECT_EQ(partitioner.n_left_over(), 3);
  EXPECT_EQ(quiet(60'000, std::vector<double>(49, 1.0 / 49)).n_left_over(), 24);
}

TEST(DataPartitioner, SpreadsWhatIsLeftOver) {
  ::testing::internal::CaptureStderr();
  const DataPartitioner partitioner(60'000, std::vector<double>(7, 1.0 / 7), {.spread_rest = true});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(sizes_of(partitioner), ElementsAre(8572, 8572, 8572, 8571, 8571, 8571, 8571));
  EXPECT_EQ(partitioner.n_left_over(), 0);
  EXPECT_EQ(all_parts(partitioner), python_permutation(60'000, 1234));
}

TEST(DataPartitioner, ASmallerPartIsMeantToBeSmaller) {
  const DataPartitioner partitioner = quiet(100, {0.25, 0.1}, {.spread_rest = true});
  EXPECT_THAT(sizes_of(partitioner), ElementsAre(25, 10));
  EXPECT_EQ(partitioner.n_left_over(), 0);
}

TEST(DataPartitioner, EdgesOfSizes) {
  EXPECT_THAT(sizes_of(quiet(0, {0.5, 0.5})), ElementsAre(0, 0));
  EXPECT_THAT(sizes_of(quiet(1, {0.5, 0.5}, {.spread_rest = true})), ElementsAre(1, 0));
  EXPECT_EQ(quiet(10, {}).size(), 0);
}

TEST(DataPartitioner, ExplainsImpossibleArguments) {
  const auto message = [](std::int64_t size, const std::vector<double>& fractions) {
    const CaughtError error = error_of([&] { (void)quiet(size, fractions); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  EXPECT_THAT(message(-1, {1.0}), HasSubstr("a data set of -1 samples"));
  EXPECT_THAT(message(10, {0.5, -0.1}), HasSubstr("fraction 1 is -0.1"));
  EXPECT_THAT(message(10, {1.5}), HasSubstr("fraction 0 is 1.5"));
  EXPECT_THAT(message(10, {std::numeric_limits<double>::quiet_NaN()}), HasSubstr("is nan"));
  EXPECT_THAT(message(10, {0.6, 0.6}), HasSubstr("the 2 fractions are 1.2 together"));
  const DataPartitioner partitioner(10);
  for (const int part : {-1, 3}) {
    EXPECT_THAT(error_of([&] { (void)partitioner.use(part); }).message,
                HasSubstr("part " + std::to_string(part) + " was requested, but there are 3"));
  }
}

}  // namespace
}  // namespace unisono
