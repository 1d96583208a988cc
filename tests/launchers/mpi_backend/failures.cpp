// Errors that end a group of backend mpi. Each test needs a separate job.

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "rank.h"

namespace unisono {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

void all_reduce(ProcessGroup& group, std::size_t count) {
  std::vector<float> values(count, 1.0F);
  group.all_reduce(as_buffer(std::span(values)));
}

TEST(MpiFailure, RanksThatCallSomethingElseAreNamed) {
  ProcessGroup& group = *world();
  all_reduce(group, 10);
  const std::string error = error_of([&] {
    if (group.rank() == 1) {
      std::vector<double> values(7);
      group.broadcast(as_buffer(std::span(values)));
    } else {
      all_reduce(group, 10);
    }
  });
  EXPECT_THAT(error, HasSubstr("all_reduce"));
  EXPECT_THAT(error, HasSubstr("broadcast"));
  EXPECT_THAT(error, HasSubstr("f64[7]"));
}

TEST(MpiFailure, BlocksOfAllToAllThatDoNotFitAreNamed) {
  ProcessGroup& group = *world();
  const auto n = static_cast<std::size_t>(group.world_size());
  std::vector<std::int64_t> gives(n, 2);
  const std::vector<std::int64_t> takes(n, 2);
  gives[0] += group.rank() == 1 ? 1 : 0;
  std::vector<float> in(2 * n + (group.rank() == 1 ? 1 : 0));
  std::vector<float> out(2 * n);
  const std::string error = error_of([&] {
    group.all_to_all(as_buffer(std::span(in)),
                     as_buffer(std::span(out)),
                     {.in_counts = gives, .out_counts = takes});
  });
  EXPECT_THAT(error, HasSubstr("rank 1 has 3 elements for this rank, which takes 2 from it"));
}

// The blocks are lists in which a rank has only its own size. A rank that has finished its part
// receives the error later.
TEST(MpiFailure, BlocksOfAGatherThatDoNotFitAreNamed) {
  ProcessGroup& group = *world();
  const auto n = static_cast<std::size_t>(group.world_size());
  std::vector<float> whole(2 * n);
  std::vector<float> mine(group.rank() == 1 ? 3 : 2);
  std::vector<Buffer> blocks;
  for (std::size_t rank = 0; group.rank() == 0 && rank < n; ++rank) {
    blocks.push_back(as_buffer(std::span(whole).subspan(2 * rank, 2)));
  }
  const std::string error = error_of([&] {
    group.gather(as_buffer(std::span(mine)), blocks);
    group.barrier();
  });
  EXPECT_THAT(error, HasSubstr("rank 1 has 3 elements for this rank, which takes 2 from it"));
}

TEST(MpiFailure, BlocksOfAScatterThatDoNotFitAreNamed) {
  ProcessGroup& group = *world();
  const auto n = static_cast<std::size_t>(group.world_size());
  std::vector<float> whole(2 * n);
  std::vector<float> mine(group.rank() == 1 ? 3 : 2);
  std::vector<Buffer> blocks;
  for (std::size_t rank = 0; group.rank() == 0 && rank < n; ++rank) {
    blocks.push_back(as_buffer(std::span(whole).subspan(2 * rank, 2)));
  }
  const std::string error = error_of([&] {
    group.scatter(blocks, as_buffer(std::span(mine)));
    group.barrier();
  });
  EXPECT_THAT(error, HasSubstr("rank 0 has 2 elements for this rank, which takes 3 from it"));
}

TEST(MpiFailure, ALateRankIsNamedWhenTimeIsUp) {
  ProcessGroup& group = *world();
  group.barrier();
  if (group.rank() == 1) {
    std::this_thread::sleep_for(3s);
    EXPECT_NE(error_of([&] { group.barrier(); }), "");
  } else {
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = error_of([&] { group.barrier({.timeout = 1s}); });
    EXPECT_THAT(error, HasSubstr("timed out waiting for rank 1"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
    EXPECT_EQ(error_of([&] { group.barrier(); }).empty(), false);
  }
}

// The launcher must not end the other ranks.
TEST(MpiFailure, ADeadRankIsNamed) {
  ProcessGroup& group = *world();
  for (int n = 0; n < 5; ++n) {
    all_reduce(group, 1 << 20);
  }
  if (group.rank() == 1) {
    std::fflush(nullptr);
    ::_exit(0);
  }
  const std::string error = error_of([&] {
    while (true) {
      all_reduce(group, 1 << 20);
    }
  });
  std::printf("survivor %d: %s\n", group.rank(), error.c_str());
  EXPECT_THAT(error, AnyOf(HasSubstr("rank 1"), HasSubstr("of other nodes")));
  std::fflush(nullptr);
  ::_exit(HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
}

}  // namespace
}  // namespace unisono
