#include "unisono/data/samplers/distributed_sampler.h"

#include <cstring>
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Indices = std::vector<std::int64_t>;

// Returns the indices of all replicas in the order of their ranks.
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
  // Returns the log of the start of `n_epochs` epochs.
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
  DistributedSampler sampler(10, 2, 0, {}, base::Logger("my job"));
  EXPECT_THAT(log_of(sampler, 2, false), HasSubstr("[unisono my job] warning: "));
  DistributedSampler quiet(10, 2, 0, {}, base::Logger("my job", LogLevel::kError));
  EXPECT_EQ(log_of(quiet, 2, false), "");
}

}  // namespace

namespace {

using test::CaughtError;
using test::error_of;
using ::testing::HasSubstr;

TEST(GlobalBatch, IsDividedOverTheRanks) {
  EXPECT_EQ(divide_batch(128, 2).per_rank, 64);
  EXPECT_EQ(to_string(divide_batch(128, 2)), "global batch 128: 64 on each of 2 ranks");
  EXPECT_EQ(to_string(divide_batch(128, 1)), "global batch 128: 128 on one rank");
}

TEST(GlobalBatch, ExplainsWhatIsNoMultipleOfTheRanks) {
  EXPECT_EQ(
      to_string(divide_batch(128, 3)),
      "global batch 126: 42 on each of 3 ranks (128 is not a multiple of 3; 126 and 129 are)");
  EXPECT_EQ(divide_batch(128, 49).size(), 98);
}

TEST(GlobalBatch, IsWhatRanksWithBatchesOfTheirOwnMake) {
  EXPECT_EQ(to_string(GlobalBatch{.per_rank = 64, .world_size = 4}),
            "global batch 256: 64 on each of 4 ranks");
}

TEST(GlobalBatch, NeedsASampleForEachRank) {
  const CaughtError error = error_of([] { (void)divide_batch(3, 4); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("a global batch of 3 over 4 ranks"));
}

}  // namespace

namespace {

using data::ShareClaim;
using test::CaughtError;
using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A group in which the other ranks already have samplers.
class FakeGroup {
 public:
  FakeGroup(int rank, std::vector<ShareClaim> claims) : rank_(rank), claims_(std::move(claims)) {}

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int world_size() const { return static_cast<int>(claims_.size()); }

  void all_gather(const Buffer& in, const Buffer& out) {
    std::memcpy(
        &claims_[static_cast<std::size_t>(rank_)], in.data, static_cast<std::size_t>(in.n_bytes()));
    std::memcpy(out.data, claims_.data(), static_cast<std::size_t>(out.n_bytes()));
  }

 private:
  int rank_;
  std::vector<ShareClaim> claims_;
};

using MakeSampler = std::function<DistributedSampler(int rank)>;

// Returns the error of check_shares() on rank 1 of `world_size` ranks; "" after success.
std::string complaint(int world_size, const MakeSampler& make) {
  std::vector<ShareClaim> claims;
  for (int rank = 0; rank < world_size; ++rank) {
    claims.push_back(make(rank).claim());
  }
  const DistributedSampler sampler = make(1);
  FakeGroup group(1, claims);
  const CaughtError error = error_of([&] {
    check_shares(group, sampler);
    throw Error(ErrorCode::kMismatch, "");
  });
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  return error.message;
}

TEST(CheckShares, AcceptsSamplersOfOneOrder) {
  EXPECT_EQ(complaint(4, [](int rank) { return DistributedSampler(10, 4, rank); }), "");
  EXPECT_EQ(complaint(2,
                      [](int rank) {
                        return DistributedSampler(10, 2, rank, {.shuffle = false, .seed = rank});
                      }),
            "");
}

TEST(CheckShares, NamesTheRanksThatTookTheirLocalRank) {
  EXPECT_THAT(complaint(4, [](int rank) { return DistributedSampler(10, 4, rank % 2); }),
              AllOf(HasSubstr("ranks 0 and 2 both deal the samples of replica 0"),
                    HasSubstr("no rank those of replica 2"),
                    HasSubstr("not the local rank")));
}

TEST(CheckShares, NamesTheRankThatTookItsLocalWorldSize) {
  EXPECT_THAT(complaint(4, [](int rank) { return DistributedSampler(10, 2, rank % 2); }),
              HasSubstr("rank 0 deals to 2 replicas in a group of 4 ranks"));
}

TEST(CheckShares, NamesRanksOfAnotherDataSetOrOrder) {
  EXPECT_THAT(
      complaint(3, [](int rank) { return DistributedSampler(rank == 2 ? 9 : 10, 3, rank); }),
      HasSubstr("ranks 0 and 2 do not share one order: 10 samples, shuffled by seed 0, "
                "drop_last false on rank 0, 9 samples"));
  EXPECT_THAT(
      complaint(2, [](int rank) { return DistributedSampler(10, 2, rank, {.seed = rank}); }),
      HasSubstr("shuffled by seed 1"));
  EXPECT_THAT(
      complaint(2,
                [](int rank) { return DistributedSampler(10, 2, rank, {.drop_last = rank == 0}); }),
      HasSubstr("drop_last true on rank 0"));
}

TEST(CheckShares, TakesResumableSamplers) {
  FakeGroup group(0, {ShareClaim{}, ResumableSampler(10, 2, 0).claim()});
  const ResumableSampler sampler(10, 2, 0);
  EXPECT_THAT(error_of([&] { check_shares(group, sampler); }).message,
              HasSubstr("ranks 0 and 1 both deal"));
}

}  // namespace
}  // namespace unisono
