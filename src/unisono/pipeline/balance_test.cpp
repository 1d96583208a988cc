#include "unisono/pipeline/balance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::pipeline {
namespace {

using test::throws_error;
using ::testing::ElementsAre;

std::vector<int> sizes_of(const std::vector<LayerRange>& parts) {
  std::vector<int> sizes;
  for (const LayerRange& part : parts) {
    sizes.push_back(part.count());
  }
  return sizes;
}

// The first begins with the first layer, the last ends with the last, none is left out.
void expect_whole(const std::vector<LayerRange>& parts, int n_layers) {
  int end = 0;
  for (const LayerRange& part : parts) {
    EXPECT_EQ(part.begin, end);
    EXPECT_GE(part.count(), 1);
    end = part.end;
  }
  EXPECT_EQ(end, n_layers);
}

TEST(CutEvenly, SizesDifferByOneAtMost) {
  for (int n_layers = 1; n_layers <= 12; ++n_layers) {
    for (int n_parts = 1; n_parts <= 4; ++n_parts) {
      const auto parts = cut_evenly(n_layers, n_parts);
      EXPECT_EQ(parts.size(), static_cast<std::size_t>(std::min(n_layers, n_parts)));
      expect_whole(parts, n_layers);
      const std::vector<int> sizes = sizes_of(parts);
      EXPECT_LE(sizes.front() - sizes.back(), 1);
      EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
    }
  }
}

TEST(CutEvenly, GivesThese) {
  EXPECT_THAT(sizes_of(cut_evenly(7, 2)), ElementsAre(4, 3));
  EXPECT_THAT(sizes_of(cut_evenly(6, 4)), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(sizes_of(cut_evenly(8, 3)), ElementsAre(3, 3, 2));
  EXPECT_THAT(sizes_of(cut_evenly(12, 4)), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(sizes_of(cut_evenly(2, 3)), ElementsAre(1, 1));
}

// A loop in wide use: begins a part wherever the layer's number is a multiple of layers / parts,
// which need not be whole. Returns the devices that each part is on.
std::vector<std::set<int>> cut_at_multiples(int n_layers, int n_parts) {
  const double length = std::max(static_cast<double>(n_layers) / n_parts, 1.0);
  std::vector<std::set<int>> parts{{0}};  // With the encoder.
  for (int layer = 0; layer < n_layers; ++layer) {
    if (layer != 0 && std::fmod(layer, length) == 0) {
      parts.emplace_back();
    }
    parts.back().insert(static_cast<int>(layer / length));
  }
  parts.back().insert(n_parts - 1);  // The decoder.
  return parts;
}

TEST(CutEvenly, DoesWhatCuttingAtMultiplesDoesNot) {
  EXPECT_THAT(cut_at_multiples(8, 2), ElementsAre(ElementsAre(0), ElementsAre(1)));
  // One part on two devices, where two were asked for.
  EXPECT_THAT(cut_at_multiples(7, 2), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(cut_at_multiples(6, 4), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(cut_evenly(7, 2).size(), 2U);
  EXPECT_EQ(cut_evenly(6, 4).size(), 4U);
}

double largest_sum(const std::vector<double>& costs, const std::vector<LayerRange>& parts) {
  const std::vector<double> sums = sums_of_parts(costs, parts);
  return *std::max_element(sums.begin(), sums.end());
}

// Tries all cuts.
double least_largest_sum(const std::vector<double>& costs, std::size_t begin, int n_parts) {
  double least = std::numeric_limits<double>::infinity();
  double sum = 0;
  if (n_parts == 1) {
    for (std::size_t layer = begin; layer < costs.size(); ++layer) {
      sum += costs[layer];
    }
    return begin < costs.size() ? sum : least;
  }
  for (std::size_t end = begin + 1; end < costs.size(); ++end) {
    sum += costs[end - 1];
    least = std::min(least, std::max(sum, least_largest_sum(costs, end, n_parts - 1)));
  }
  return least;
}

TEST(CutByCost, NoOtherCutHasASmallerLargestPart) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int n_layers = 1 + static_cast<int>(random() % 10);
    const int n_parts = 1 + static_cast<int>(random() % static_cast<unsigned>(n_layers));
    std::vector<double> costs;
    for (int layer = 0; layer < n_layers; ++layer) {
      costs.push_back(static_cast<double>(random() % 9));
    }
    const auto parts = cut_by_cost(costs, n_parts);
    ASSERT_EQ(parts.size(), static_cast<std::size_t>(n_parts));
    expect_whole(parts, n_layers);
    EXPECT_EQ(largest_sum(costs, parts), least_largest_sum(costs, 0, n_parts));
  }
}

TEST(CutByCost, GivesThese) {
  EXPECT_THAT(sizes_of(cut_by_cost({9, 1, 1, 1, 1, 9}, 3)), ElementsAre(1, 4, 1));
  EXPECT_THAT(sizes_of(cut_by_cost({1, 1, 1, 1}, 4)), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(sizes_of(cut_by_cost({0, 0, 0}, 2)), ElementsAre(1, 2));
}

TEST(CutByCost, NamesWhatIsWrong) {
  constexpr ErrorCode kCode = ErrorCode::kInvalidArgument;
  EXPECT_THAT([] { (void)cut_by_cost({1, 2}, 3); }, throws_error(kCode, "2 layers", "3 parts"));
  EXPECT_THAT([] { (void)cut_by_cost({1, 2}, 0); }, throws_error(kCode, "0 parts"));
  EXPECT_THAT([] { (void)cut_by_cost({1, -2}, 1); }, throws_error(kCode, "layer 1", "-2"));
  EXPECT_THAT([] { (void)cut_by_cost({NAN}, 1); }, throws_error(kCode, "layer 0", "nan"));
  EXPECT_THAT([] { (void)cut_evenly(0, 1); }, throws_error(kCode, "0 layers"));
  EXPECT_THAT([] { (void)cut_evenly(1, 0); }, throws_error(kCode, "0 parts"));
}

}  // namespace
}  // namespace unisono::pipeline
