#include "unisono/collective/choose.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::collective {
namespace {

using Kind = Receivers::Kind;

constexpr std::int64_t kSlot = 16 << 10;
constexpr std::int64_t kLarge = 64 << 20;

// Returns the nodes of `local` ranks on each of `n` nodes.
std::vector<std::string> nodes(int n, int local) {
  std::vector<std::string> names;
  for (int rank = 0; rank < n * local; ++rank) {
    names.push_back("node" + std::to_string(rank / local));
  }
  return names;
}

Algorithm chosen(int n_nodes, int local, std::int64_t n_bytes, const LinkCosts& links = {}) {
  const Topology topology(0, nodes(n_nodes, local));
  return Chooser(topology, links, kSlot).choose(Kind::kAll, n_bytes);
}

TEST(Chooser, TakesFewestStepsForFewBytes) {
  EXPECT_EQ(chosen(1, 2, 8), Algorithm::kOneShot);
  EXPECT_EQ(chosen(1, 8, 8), Algorithm::kOneShot);
  EXPECT_EQ(chosen(2, 1, 8), Algorithm::kOneShot);
  EXPECT_EQ(chosen(4, 2, 8), Algorithm::kOneShot);
}

TEST(Chooser, TakesLeastTrafficForManyBytes) {
  EXPECT_EQ(chosen(1, 2, kLarge), Algorithm::kTwoShot);
  EXPECT_EQ(chosen(2, 2, kLarge), Algorithm::kTwoShot);
  EXPECT_EQ(chosen(4, 1, kLarge), Algorithm::kTwoShot);
}

TEST(Chooser, SwitchesInsideANodeWhereReadingAllCostsAsMuchAsAMeeting) {
  const LinkCosts links{.session = 1e-6, .local_byte = 1e-10};
  // One-shot on 8 ranks reads 5 more bytes for each byte of the buffer: 1 us equals 2000 bytes.
  EXPECT_EQ(chosen(1, 8, 1990, links), Algorithm::kOneShot);
  EXPECT_EQ(chosen(1, 8, 2010, links), Algorithm::kTwoShot);
}

TEST(Chooser, SendsFewMessagesWhereTheyAreDear) {
  const LinkCosts dear{.latency = 10e-6, .message = 20e-6};
  EXPECT_EQ(chosen(32, 1, 8, dear), Algorithm::kTree);
  EXPECT_EQ(chosen(32, 1, 1 << 20, dear), Algorithm::kHalvingDoubling);
  const LinkCosts cheap{.latency = 50e-6, .message = 0.1e-6};
  EXPECT_EQ(chosen(32, 1, 8, cheap), Algorithm::kOneShot);
  EXPECT_EQ(chosen(32, 1, 1 << 20, cheap), Algorithm::kTwoShot);
}

TEST(Chooser, NeverTakesAnAlgorithmOfAnotherOrder) {
  for (const double message : {0.0, 1e-6, 1e-3}) {
    for (const int n_nodes : {1, 2, 3, 5, 16}) {
      for (std::int64_t n_bytes = 1; n_bytes < kLarge; n_bytes *= 4) {
        const Algorithm algorithm = chosen(n_nodes, 2, n_bytes, {.message = message});
        EXPECT_THAT(algorithm,
                    ::testing::AnyOf(Algorithm::kOneShot,
                                     Algorithm::kTwoShot,
                                     Algorithm::kTree,
                                     Algorithm::kHalvingDoubling));
      }
    }
  }
}

TEST(Chooser, KnowsWhatEachOperationCanDo) {
  const LinkCosts dear{.latency = 10e-6, .message = 20e-6};
  const Topology topology(0, nodes(32, 1));
  const Chooser chooser(topology, dear, kSlot);
  for (const std::int64_t n_bytes : {8, 1 << 20}) {
    for (const auto& [algorithm, seconds] : chooser.estimates(Kind::kRoot, n_bytes)) {
      EXPECT_THAT(algorithm, ::testing::AnyOf(Algorithm::kOneShot, Algorithm::kTwoShot));
    }
    EXPECT_EQ(chooser.choose(Kind::kOwner, n_bytes), Algorithm::kTwoShot);
  }
  for (const auto& [algorithm, seconds] : chooser.estimates(Kind::kAll, kSlot + 1)) {
    EXPECT_NE(algorithm, Algorithm::kOneShot);
  }
}

TEST(Chooser, EstimatesAreSortedAndTheFirstIsChosen) {
  const Topology topology(0, nodes(8, 2));
  const Chooser chooser(topology, {}, kSlot);
  for (std::int64_t n_bytes = 1; n_bytes < kLarge; n_bytes *= 2) {
    const auto estimates = chooser.estimates(Kind::kAll, n_bytes);
    for (std::size_t next = 1; next < estimates.size(); ++next) {
      EXPECT_LE(estimates[next - 1].seconds, estimates[next].seconds);
    }
    EXPECT_EQ(estimates.front().algorithm, chooser.choose(Kind::kAll, n_bytes));
  }
}

TEST(Chooser, AllRanksChooseTheSame) {
  const std::vector<std::string> uneven{"a", "b", "a", "c", "c", "c", "b"};
  const Chooser first(Topology(0, uneven), {}, kSlot);
  for (int rank = 1; rank < 7; ++rank) {
    const Chooser other(Topology(rank, uneven), {}, kSlot);
    for (std::int64_t n_bytes = 1; n_bytes < kLarge; n_bytes *= 2) {
      EXPECT_EQ(first.choose(Kind::kAll, n_bytes), other.choose(Kind::kAll, n_bytes));
    }
  }
}

TEST(Chooser, AsksForNoMeasurementWhereItDecidesNothing) {
  for (const int local : {1, 2, 3}) {
    const Topology topology(0, nodes(1, local));
    EXPECT_FALSE(Chooser::depends_on_links(topology));
    for (const LinkCosts& links : {LinkCosts{.session = 1e-9}, LinkCosts{.session = 1e-3}}) {
      EXPECT_EQ(chosen(1, local, kSlot, links), Algorithm::kOneShot);
    }
  }
  EXPECT_TRUE(Chooser::depends_on_links(Topology(0, nodes(1, 4))));
  EXPECT_TRUE(Chooser::depends_on_links(Topology(0, nodes(3, 1))));
}

TEST(Cost, OfAChunkedRingIsTheTextbooks) {
  const LinkCosts links{.latency = 10e-6, .message = 0, .remote_byte = 1e-9};
  const Cost cost = cost_of(Algorithm::kChunkedRing, Topology(0, nodes(4, 1)), links);
  const LinkCosts none{.latency = 0, .message = 0, .remote_byte = 0};
  const Cost local = cost_of(Algorithm::kChunkedRing, Topology(0, nodes(4, 1)), none);
  EXPECT_NEAR(cost.fixed - local.fixed, 6 * 10e-6, 1e-12);
  EXPECT_NEAR(cost.per_byte - local.per_byte, 2.0 * 3 / 4 * 1e-9, 1e-15);
}

TEST(Cost, OfAParameterServerIsItsServers) {
  const LinkCosts links{.latency = 0, .message = 0, .remote_byte = 1e-9};
  const Cost cost = cost_of(Algorithm::kParameterServer, Topology(0, nodes(8, 1)), links);
  const Cost ring = cost_of(Algorithm::kChunkedRing, Topology(0, nodes(8, 1)), links);
  EXPECT_LE(2 * ring.per_byte, cost.per_byte);
}

}  // namespace
}  // namespace unisono::collective
