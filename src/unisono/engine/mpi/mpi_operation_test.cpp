#include "unisono/engine/mpi/mpi_operation.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::engine::mpi {
namespace {

using ::testing::ElementsAre;

Buffer part(std::vector<int>& values, std::size_t begin, std::size_t count) {
  return as_buffer(std::span(values).subspan(begin, count));
}

TEST(Blocks, InARowStayWhereTheyAre) {
  std::vector<int> values{1, 2, 3, 4, 5};
  const std::vector<Buffer> row{
      part(values, 1, 1), Buffer{.dtype = DType::kInt32}, part(values, 2, 2)};
  MpiBlocks blocks;
  blocks.set_source(row);
  EXPECT_FALSE(blocks.is_copy());
  EXPECT_EQ(static_cast<void*>(blocks.data()), &values[1]);
  EXPECT_THAT(blocks.counts(), ElementsAre(1, 0, 2));
  EXPECT_THAT(blocks.offsets(), ElementsAre(0, 1, 1));
}

TEST(Blocks, ThatLieApartAreCopiedThereAndBack) {
  std::vector<int> values{1, 2, 3, 4, 5};
  const std::vector<Buffer> apart{part(values, 3, 2), part(values, 0, 1)};
  MpiBlocks blocks;
  blocks.set_source(apart);
  ASSERT_TRUE(blocks.is_copy());
  std::vector<int> row(3);
  std::memcpy(row.data(), blocks.data(), 3 * sizeof(int));
  EXPECT_THAT(row, ElementsAre(4, 5, 1));
  blocks.set_target(apart, false);
  ASSERT_TRUE(blocks.is_copy());
  row = {7, 8, 9};
  std::memcpy(blocks.data(), row.data(), 3 * sizeof(int));
  blocks.deliver();
  EXPECT_THAT(values, ElementsAre(9, 2, 3, 7, 8));
}

TEST(Blocks, ATargetMayBeWrittenBesideItsMemory) {
  std::vector<int> values{1, 2};
  const std::vector<Buffer> whole{part(values, 0, 2)};
  MpiBlocks blocks;
  blocks.set_target(whole, true);
  EXPECT_TRUE(blocks.is_copy());
  EXPECT_NE(static_cast<void*>(blocks.data()), values.data());
  blocks.set_target(whole, false);
  EXPECT_FALSE(blocks.is_copy());
}

TEST(Blocks, WithoutElementsNeedNoMemory) {
  const std::vector<Buffer> none(3);
  MpiBlocks blocks;
  blocks.set_target(none, true);
  EXPECT_FALSE(blocks.is_copy());
  EXPECT_THAT(blocks.counts(), ElementsAre(0, 0, 0));
  blocks.deliver();
}

}  // namespace
}  // namespace unisono::engine::mpi
