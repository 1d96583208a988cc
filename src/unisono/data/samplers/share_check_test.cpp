#include "unisono/data/samplers/share_check.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/samplers/resumable_sampler.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::ShareClaim;
using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A group whose other ranks have their samplers already.
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

// What check_shares() says on rank 1 of `world_size`; "" where all is well.
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
                    HasSubstr("nobody those of replica 2"),
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
