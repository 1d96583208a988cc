#include "unisono/checkpoint/plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::checkpoint {
namespace {

using Shape = std::vector<std::int64_t>;

// Returns the elements of a box, one by one, for a tensor with numbered elements.
std::vector<std::int32_t> elements_of(const Box& box, const Shape& shape) {
  std::vector<std::int32_t> elements;
  Shape at(shape.size(), 0);
  const std::int64_t n_elems = count_elements(box.sizes).value();
  for (std::int64_t i = 0; i < n_elems; ++i) {
    std::int64_t number = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      number = number * shape[axis] + box.offsets[axis] + at[axis];
    }
    elements.push_back(static_cast<std::int32_t>(number));
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++at[axis] < box.sizes[axis]) {
        break;
      }
      at[axis] = 0;
    }
  }
  return elements;
}

// Cuts the boxes at random places until there are `n` boxes, or no box can be cut further.
std::vector<Box> cut(const Shape& shape, std::size_t n, std::mt19937& random) {
  std::vector<Box> boxes{whole_box(shape)};
  for (int tries = 0; boxes.size() < n && tries < 100; ++tries) {
    const std::size_t which = random() % boxes.size();
    const std::size_t axis = random() % shape.size();
    const std::int64_t size = boxes[which].sizes[axis];
    if (size > 1) {
      Box rest = boxes[which];
      const std::int64_t first = 1 + static_cast<std::int64_t>(random()) % (size - 1);
      boxes[which].sizes[axis] = first;
      rest.offsets[axis] += first;
      rest.sizes[axis] -= first;
      boxes.push_back(rest);
    }
  }
  return boxes;
}

std::vector<std::int32_t> carry_out(const CopyPlan& plan,
                                    const std::vector<std::vector<std::int32_t>>& stored,
                                    const Box& wanted) {
  std::vector<std::int32_t> got(static_cast<std::size_t>(count_elements(wanted.sizes).value()), -1);
  for (const PlannedCopy& planned : plan.copies) {
    for_each_run(planned.copy, [&](std::uint64_t source, std::uint64_t target) {
      std::memcpy(reinterpret_cast<std::byte*>(got.data()) + target,
                  reinterpret_cast<const std::byte*>(stored[planned.stored].data()) + source,
                  planned.copy.run_bytes);
    });
  }
  return got;
}

class Plans : public ::testing::TestWithParam<int> {};

TEST_P(Plans, AnySplitBecomesAnyOther) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  Shape shape(1 + random() % 4);
  for (std::int64_t& size : shape) {
    size = 1 + static_cast<std::int64_t>(random() % 6);
  }
  const std::vector<Box> before = cut(shape, 1 + random() % 7, random);
  std::vector<std::vector<std::int32_t>> stored;
  for (const Box& box : before) {
    stored.push_back(elements_of(box, shape));
  }
  const BoxPair overlap = find_overlap(before);
  EXPECT_EQ(overlap.first, overlap.second);
  for (const Box& wanted : cut(shape, 1 + random() % 7, random)) {
    const CopyPlan plan = plan_copies(before, wanted, DType::kInt32);
    EXPECT_EQ(plan.n_elems, count_elements(wanted.sizes));
    EXPECT_LE(plan.copies.size(), before.size());
    EXPECT_EQ(carry_out(plan, stored, wanted), elements_of(wanted, shape));
  }
}

TEST_P(Plans, ABoxThatIsMissingIsMissed) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const Shape shape{5, 4, 6};
  std::vector<Box> boxes = cut(shape, 6, random);
  const Box lost = boxes.back();
  boxes.pop_back();
  EXPECT_EQ(plan_copies(boxes, whole_box(shape), DType::kInt8).n_elems,
            120 - count_elements(lost.sizes).value());
}

TEST_P(Plans, BoxesThatOverlapAreFound) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  std::vector<Box> boxes = cut({7, 3}, 5, random);
  boxes.push_back(boxes[random() % boxes.size()]);
  const BoxPair overlap = find_overlap(boxes);
  EXPECT_NE(overlap.first, overlap.second);
  EXPECT_TRUE(intersect(boxes[overlap.first], boxes[overlap.second]));
}

INSTANTIATE_TEST_SUITE_P(Seeds, Plans, ::testing::Range(0, 50));

TEST(Plan, RowsAreOneRun) {
  const std::vector<Box> halves{{.offsets = {0, 0}, .sizes = {500, 8}},
                                {.offsets = {500, 0}, .sizes = {500, 8}}};
  const Box wanted{.offsets = {400, 0}, .sizes = {200, 8}};
  const CopyPlan plan = plan_copies(halves, wanted, DType::kFloat32);
  ASSERT_EQ(plan.copies.size(), 2U);
  EXPECT_TRUE(plan.copies[0].copy.axes.empty());
  EXPECT_EQ(plan.copies[0].copy.source_offset, 400U * 32);
  EXPECT_EQ(plan.copies[1].copy.target_offset, 100U * 32);
  EXPECT_EQ(plan.copies[1].copy.run_bytes, 100U * 32);
}

// The plan of a column of a billion rows has one entry.
TEST(Plan, ThePlanDoesNotGrowWithTheTensor) {
  const std::vector<Box> stored{whole_box({1'000'000'000, 4})};
  const Box column{.offsets = {0, 1}, .sizes = {1'000'000'000, 1}};
  const CopyPlan plan = plan_copies(stored, column, DType::kFloat32);
  ASSERT_EQ(plan.copies.size(), 1U);
  ASSERT_EQ(plan.copies[0].copy.axes.size(), 1U);
  EXPECT_EQ(plan.copies[0].copy.axes[0].count, 1'000'000'000);
}

TEST(Plan, ElementsOfLessThanAByteAreCopiedInWholeBytes) {
  const ElementType fours = ElementType::named("F4").value();
  const std::vector<Box> halves{{.offsets = {0, 0}, .sizes = {2, 6}},
                                {.offsets = {2, 0}, .sizes = {2, 6}}};
  const CopyPlan rows = plan_copies(halves, {.offsets = {1, 0}, .sizes = {2, 6}}, fours);
  ASSERT_EQ(rows.copies.size(), 2U);
  EXPECT_TRUE(rows.is_of_whole_bytes);
  EXPECT_EQ(rows.copies[0].copy.source_offset, 3U);
  EXPECT_EQ(rows.copies[0].copy.run_bytes, 3U);
  EXPECT_EQ(rows.copies[1].copy.target_offset, 3U);
  EXPECT_TRUE(plan_copies(halves, {.offsets = {0, 2}, .sizes = {4, 2}}, fours).is_of_whole_bytes);
  EXPECT_FALSE(plan_copies(halves, {.offsets = {0, 1}, .sizes = {4, 2}}, fours).is_of_whole_bytes);
  EXPECT_FALSE(plan_copies(halves, {.offsets = {0, 0}, .sizes = {4, 3}}, fours).is_of_whole_bytes);
}

TEST(Plan, AnEmptyBoxHidesNoOverlap) {
  const std::vector<Box> boxes{{.offsets = {0}, .sizes = {4}},
                               {.offsets = {1}, .sizes = {0}},
                               {.offsets = {2}, .sizes = {4}}};
  const BoxPair overlap = find_overlap(boxes);
  EXPECT_EQ(overlap.first, 0U);
  EXPECT_EQ(overlap.second, 2U);
}

TEST(TensorBox, RowsOfRanksFollowEachOther) {
  for (const std::int64_t n_rows : {std::int64_t{0}, std::int64_t{3}, std::int64_t{10}}) {
    for (int world_size = 1; world_size < 6; ++world_size) {
      std::int64_t end = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const Box rows = rows_of_rank({n_rows, 2}, rank, world_size);
        EXPECT_EQ(rows.offsets[0], end);
        EXPECT_LE(rows.sizes[0], n_rows / world_size + 1);
        end += rows.sizes[0];
      }
      EXPECT_EQ(end, n_rows);
    }
  }
  EXPECT_THAT([] { (void)rows_of_rank({4}, 2, 2); },
              test::throws_error(ErrorCode::kInvalidArgument, "rank 2", "world of 2"));
}

TEST(TensorBox, CountsThatOverflowAreNone) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(count_elements({most, 2}), std::nullopt);
  EXPECT_EQ(count_elements({most, 0, most}), std::nullopt);
  EXPECT_EQ(count_elements({-1}), std::nullopt);
  EXPECT_EQ(count_elements({}), 1);
  EXPECT_EQ(count_elements({4, 0}), 0);
  EXPECT_EQ(count_bytes(DType::kFloat64, {std::int64_t{1} << 60}), std::nullopt);
  EXPECT_EQ(count_bytes(ElementType::named("F4").value(), {3, 2}), 3U);
  EXPECT_EQ(count_bytes(ElementType::named("F4").value(), {3}), std::nullopt);
  EXPECT_EQ(count_bytes(ElementType::named("F6_E2M3").value(), {4}), 3U);
  EXPECT_FALSE(is_within({.offsets = {most}, .sizes = {most}}, {most}));
}

}  // namespace
}  // namespace unisono::checkpoint
