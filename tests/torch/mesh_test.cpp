#include "unisono/torch/parallel/mesh.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

#include "rank_threads.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using parallel::Mesh;
using ::testing::HasSubstr;

TEST(Mesh, TheLastDimensionRunsFastest) {
  run_ranks(6, [](const std::shared_ptr<ProcessGroup>& group) {
    const Mesh mesh(group, {{"data", 2}, {"pipe", 3}, {"tensor", 1}});
    const int rank = group->rank();
    EXPECT_EQ(mesh.coordinates(), (std::vector<int>{rank / 3, rank % 3, 0}));
    EXPECT_EQ(mesh.coordinate("pipe"), rank % 3);
    EXPECT_EQ(mesh.size("pipe"), 3);
    EXPECT_EQ(mesh.rank_at(mesh.coordinates()), rank);
    for (const auto* const name : {"data", "pipe", "tensor"}) {
      EXPECT_EQ(mesh.group(name)->world_size(), mesh.size(name));
      EXPECT_EQ(mesh.group(name)->rank(), mesh.coordinate(name));
    }
  });
}

TEST(Mesh, ALineIsTheRanksThatDifferInOneCoordinate) {
  run_ranks(4, [](const std::shared_ptr<ProcessGroup>& group) {
    const Mesh mesh(group, {{"data", 2}, {"pipe", 2}});
    double in_line = 1 << group->rank();
    mesh.group("data")->all_reduce(as_buffer(std::span(&in_line, 1)));
    EXPECT_EQ(in_line, group->rank() % 2 == 0 ? 1 + 4 : 2 + 8);
    double in_pipeline = 1 << group->rank();
    mesh.group("pipe")->all_reduce(as_buffer(std::span(&in_pipeline, 1)));
    EXPECT_EQ(in_pipeline, group->rank() < 2 ? 1 + 2 : 4 + 8);
  });
}

TEST(Mesh, RefusesWhatIsNoGridOfTheRanks) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const auto problem_of = [&](const std::vector<parallel::MeshDimension>& dimensions) {
      try {
        const Mesh mesh(group, dimensions);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_THAT(problem_of({{"data", 2}, {"pipe", 2}}),
                HasSubstr("data 2 x pipe 2 has 4 places, but the group has 2 ranks"));
    EXPECT_THAT(problem_of({}), HasSubstr("no dimensions"));
    EXPECT_THAT(problem_of({{"a", 2}, {"a", 1}}), HasSubstr("two dimensions \"a\""));
    EXPECT_THAT(problem_of({{"", 2}}), HasSubstr("has no name"));
    EXPECT_THAT(problem_of({{"a", 0}, {"b", 2}}), HasSubstr("\"a\" has size 0"));
    EXPECT_THAT(problem_of({{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}}),
                HasSubstr("places, but the group has 2"));
    const Mesh mesh(group, {{"data", 2}});
    EXPECT_THAT([&] { (void)mesh.group("pipe"); },
                ::testing::Throws<Error>(::testing::Property(
                    &Error::what, HasSubstr("no dimension \"pipe\"; there are data"))));
    EXPECT_THROW((void)mesh.rank_at({2}), Error);
    EXPECT_THROW((void)mesh.rank_at({0, 0}), Error);
  });
}

}  // namespace
}  // namespace unisono::testing
