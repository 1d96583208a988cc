#include "unisono/data/samplers/distributed_sampler.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Indices = std::vector<std::int64_t>;

// The indices of all replicas, in the order of their ranks.
std::vector<Indices> deal(std::int64_t size,
                          int num_replicas,
                          const DistributedSamplerOptions& options,
                          std::int64_t epoch = 0) {
  std::vector<Indices> all;
  for (int rank = 0; rank < num_replicas; ++rank) {
    DistributedSampler sampler(size, num_replicas, rank, options);
    sampler.set_epoch(epoch);
    all.push_back(sampler.indices());
    EXPECT_EQ(static_cast<std::int64_t>(all.back().size()), sampler.num_samples());
  }
  return all;
}

Indices first(const Indices& indices, std::size_t count) {
  return {indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(count)};
}

TEST(DistributedSampler, TenSamplesOverFourReplicas) {
  EXPECT_THAT(deal(10, 4, {.shuffle = false}),
              ElementsAre(Indices{0, 4, 8}, Indices{1, 5, 9}, Indices{2, 6, 0}, Indices{3, 7, 1}));
  EXPECT_THAT(deal(10, 4, {}),
              ElementsAre(Indices{4, 3, 6}, Indices{1, 9, 2}, Indices{7, 0, 4}, Indices{5, 8, 1}));
  EXPECT_THAT(deal(10, 4, {.shuffle = false, .drop_last = true}),
              ElementsAre(Indices{0, 4}, Indices{1, 5}, Indices{2, 6}, Indices{3, 7}));
  EXPECT_THAT(deal(10, 4, {.drop_last = true}),
              ElementsAre(Indices{4, 3}, Indices{1, 9}, Indices{7, 0}, Indices{5, 8}));
}

TEST(DistributedSampler, SetEpochChangesTheOrderAndBack) {
  DistributedSampler sampler(10, 2, 0);
  sampler.set_epoch(0);
  EXPECT_THAT(sampler.indices(), ElementsAre(4, 7, 3, 0, 6));
  sampler.set_epoch(1);
  EXPECT_THAT(sampler.indices(), ElementsAre(5, 1, 0, 9, 7));
  sampler.set_epoch(0);
  EXPECT_THAT(sampler.indices(), ElementsAre(4, 7, 3, 0, 6));
}

TEST(DistributedSampler, MnistsSizeEqualsTorch) {
  EXPECT_THAT(first(deal(60'000, 2, {}, 0)[0], 6),
              ElementsAre(36044, 57327, 21567, 9481, 26145, 36531));
  EXPECT_THAT(first(deal(60'000, 2, {}, 1)[0], 6),
              ElementsAre(35845, 33254, 11299, 58355, 35815, 57358));

  const Indices seventh = deal(60'000, 7, {.seed = 42}, 2)[6];
  EXPECT_EQ(seventh.size(), 8572U);
  EXPECT_THAT(first(seventh, 5), ElementsAre(14150, 28665, 4330, 50288, 13872));
  EXPECT_THAT(Indices(seventh.end() - 3, seventh.end()), ElementsAre(3054, 6066, 38550));
}

TEST(DistributedSampler, NegativeSeedEqualsTorch) {
  EXPECT_THAT(first(deal(100'003, 3, {.seed = -5}, 1)[1], 5),
              ElementsAre(7241, 15181, 18402, 7313, 10105));
}

TEST(DistributedSampler, CountsWhatIsDealt) {
  const DistributedSampler sampler(60'000, 7, 3);
  EXPECT_EQ(sampler.num_samples(), 8572);
  EXPECT_EQ(sampler.total_size(), 60'004);
  EXPECT_EQ(DistributedSampler(60'000, 7, 3, {.drop_last = true}).total_size(), 59'997);
}

TEST(DistributedSampler, MoreReplicasThanSamples) {
  EXPECT_THAT(deal(3, 8, {}),
              ElementsAre(Indices{2},
                          Indices{0},
                          Indices{1},
                          Indices{2},
                          Indices{0},
                          Indices{1},
                          Indices{2},
                          Indices{0}));
  EXPECT_THAT(deal(3, 8, {.drop_last = true}), ::testing::Each(IsEmpty()));
  EXPECT_THAT(deal(0, 2, {}), ::testing::Each(IsEmpty()));
}

TEST(DistributedSampler, DropLastDealsNoSampleTwice) {
  for (const std::int64_t size : {1, 2, 7, 64, 100}) {
    for (const int num_replicas : {1, 2, 3, 5, 8}) {
      std::set<std::int64_t> seen;
      std::size_t n_dealt = 0;
      for (const Indices& indices : deal(size, num_replicas, {.drop_last = true}, 3)) {
        seen.insert(indices.begin(), indices.end());
        n_dealt += indices.size();
      }
      EXPECT_EQ(seen.size(), n_dealt);
      EXPECT_EQ(static_cast<std::int64_t>(n_dealt), size / num_replicas * num_replicas);
    }
  }
}

TEST(DistributedSampler, TakesRankAndWorldSizeFromAGroup) {
  struct {
    [[nodiscard]] int rank() const { return 2; }

    [[nodiscard]] int world_size() const { return 4; }
  } const group;

  DistributedSampler sampler(10, group, {.shuffle = false});
  EXPECT_THAT(sampler.indices(), ElementsAre(2, 6, 0));
}

TEST(DistributedSampler, ExplainsImpossibleArguments) {
  const auto message = [](std::int64_t size, int num_replicas, int rank) {
    const CaughtError error = error_of([&] { (void)DistributedSampler(size, num_replicas, rank); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  EXPECT_THAT(message(10, 4, 4), HasSubstr("rank is 4, but 4 replicas have the ranks 0 to 3"));
  EXPECT_THAT(message(10, 4, -1), HasSubstr("rank is -1"));
  EXPECT_THAT(message(10, 0, 0), HasSubstr("num_replicas is 0"));
  EXPECT_THAT(message(10, -2, 0), HasSubstr("num_replicas is -2"));
  EXPECT_THAT(message(-1, 2, 0), HasSubstr("a data set of -1 samples"));
  EXPECT_THAT(message(INT64_MAX, 2, 0), HasSubstr("a data set of 9223372036854775807 samples"));
}

class ForgottenSetEpoch : public ::testing::Test {
 protected:
  // What is logged while `n_epochs` epochs start.
  static std::string log_of(DistributedSampler& sampler, int n_epochs, bool sets_epoch) {
    ::testing::internal::CaptureStderr();
    for (int epoch = 0; epoch < n_epochs; ++epoch) {
      if (sets_epoch) {
        sampler.set_epoch(epoch);
      }
      (void)sampler.indices();
    }
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(ForgottenSetEpoch, IsWarnedAboutOnceWhenTheSecondEpochStarts) {
  DistributedSampler sampler(10, 2, 1);
  EXPECT_EQ(log_of(sampler, 1, false), "");
  const std::string second = log_of(sampler, 1, false);
  EXPECT_THAT(second, HasSubstr("[unisono rank 1] warning: DistributedSampler: a second epoch"));
  EXPECT_THAT(second, HasSubstr("call sampler.set_epoch(epoch)"));
  EXPECT_EQ(log_of(sampler, 3, false), "");
}

TEST_F(ForgottenSetEpoch, IsNoneWhereOrderDoesNotMatterOrWasSet) {
  DistributedSampler in_order(10, 2, 0, {.shuffle = false});
  EXPECT_EQ(log_of(in_order, 3, false), "");
  DistributedSampler with_epochs(10, 2, 0);
  EXPECT_EQ(log_of(with_epochs, 3, true), "");
}

TEST_F(ForgottenSetEpoch, GoesToTheLoggerThatWasGiven) {
  DistributedSampler sampler(10, 2, 0, {}, Logger("my job"));
  EXPECT_THAT(log_of(sampler, 2, false), HasSubstr("[unisono my job] warning: "));
  DistributedSampler quiet(10, 2, 0, {}, Logger("my job", LogLevel::kError));
  EXPECT_EQ(log_of(quiet, 2, false), "");
}

}  // namespace
}  // namespace unisono
