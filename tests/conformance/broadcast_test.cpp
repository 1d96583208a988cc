#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "reference.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::one_node;
using test::run_ranks;

class BroadcastWorlds : public ::testing::TestWithParam<int> {};

TEST_P(BroadcastWorlds, EveryRankGetsEveryRootsBytes) {
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [](ProcessGroup& group) {
      for (const std::int64_t count : {0, 1, 24, 16384, 16385, 300000}) {
        for (int root = 0; root < group.world_size(); ++root) {
          const auto wanted =
              test::contribution(DType::kUInt8, count, root, static_cast<unsigned>(count));
          auto mine = group.rank() == root
                          ? wanted
                          : std::vector<std::byte>(static_cast<std::size_t>(count));
          group.broadcast({.data = mine.data(), .count = count, .dtype = DType::kUInt8},
                          {.root = root});
          ASSERT_EQ(mine, wanted) << "root " << root << " count " << count;
        }
      }
    });
  }
}

TEST_P(BroadcastWorlds, SymmetricMemoryWorksToo) {
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [](ProcessGroup& group) {
      const std::int64_t count = 1048576 + 17;
      const int root = group.world_size() - 1;
      const Buffer buffer = group.allocate(count, DType::kFloat32);
      const std::span<float> values(static_cast<float*>(buffer.data), count);
      for (std::size_t index = 0; index < values.size() && group.rank() == root; ++index) {
        values[index] = static_cast<float>(index);
      }
      const Work work = group.broadcast_async(buffer, {.root = root});
      work.wait();
      for (std::size_t index = 0; index < values.size(); ++index) {
        ASSERT_EQ(values[index], static_cast<float>(index));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, BroadcastWorlds, ::testing::Values(1, 2, 3, 4, 5));

TEST(Broadcast, ARootOutsideTheWorldIsRefused) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    std::int32_t value = 0;
    for (const int root : {-1, 2}) {
      try {
        group.broadcast(as_buffer(std::span(&value, 1)), {.root = root});
        ADD_FAILURE() << "root " << root << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      }
    }
  });
}

}  // namespace
}  // namespace unisono
