#include "unisono/comm/objects.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <latch>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Returns an object of any length, including 0, with any bytes.
std::string object_of(int rank) {
  return rank == 1 ? std::string()
                   : std::string(static_cast<std::size_t>(20000 * rank + 3), '\0') + "r" +
                         std::to_string(rank);
}

class Objects : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Objects, OfAnyLengthPassBetweenRanks) {
  test::run_ranks({.nodes = GetParam()}, [](ProcessGroup& group) {
    std::vector<std::string> all;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      all.push_back(object_of(rank));
    }
    const std::string mine = object_of(group.rank());
    EXPECT_EQ(all_gather_object(group, mine), all);
    for (int root = 0; root < group.world_size(); ++root) {
      const bool is_root = group.rank() == root;
      EXPECT_EQ(gather_object(group, mine, root), is_root ? all : std::vector<std::string>());
      EXPECT_EQ(broadcast_object(group, mine, root), object_of(root));
      EXPECT_EQ(scatter_object(group, is_root ? all : std::vector<std::string>(), root), mine);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         Objects,
                         ::testing::Values(std::vector<std::string>{"a"},
                                           std::vector<std::string>{"a", "a", "a"},
                                           std::vector<std::string>{"a", "b", "a", "b"}));

// Asynchronous and blocking forms, with other operations called during their progress.
TEST_P(Objects, TheirTwoHalvesStayTogether) {
  test::run_ranks({.nodes = GetParam()}, [](ProcessGroup& group) {
    const int n_ranks = group.world_size();
    const std::string mine = object_of(group.rank());
    std::vector<std::string> all;
    for (int rank = 0; rank < n_ranks; ++rank) {
      all.push_back(object_of(rank));
    }
    const int root = n_ranks - 1;
    const bool is_root = group.rank() == root;
    const std::vector<std::string> at_root = is_root ? all : std::vector<std::string>();
    std::vector<std::int32_t> ones(1000, 1);

    ObjectWork<std::vector<std::string>> gathered = all_gather_object_async(group, mine);
    const Work sum = group.all_reduce_async(as_buffer(std::span(ones)));
    if (is_root) {
      EXPECT_EQ(gather_object(group, mine, root), at_root);
    } else {
      EXPECT_EQ(gather_object_async(group, mine, root).get(), at_root);
    }
    ObjectWork<std::string> sent = broadcast_object_async(group, mine, root);
    ObjectWork<std::string> handed_out = scatter_object_async(group, at_root, root);
    EXPECT_EQ(gathered.work().sequence_number(), 1U);
    EXPECT_EQ(sum.sequence_number(), 3U);
    EXPECT_EQ(sent.work().sequence_number(), 6U);

    EXPECT_EQ(handed_out.get(), mine);
    EXPECT_EQ(sent.get(), object_of(root));
    EXPECT_EQ(gathered.get(), all);
    sum.wait();
    EXPECT_EQ(ones, std::vector<std::int32_t>(1000, n_ranks));
  });
}

TEST(Objects, RootsAreRanksOfTheGroup) {
  test::run_ranks(test::one_node(3), [](ProcessGroup& world) {
    const auto group = world.new_group(std::vector<int>{2, 0, 1});
    const std::string mine = object_of(group->rank());
    std::vector<std::string> all;
    for (int rank = 0; rank < group->world_size(); ++rank) {
      all.push_back(object_of(rank));
    }
    for (int root = 0; root < group->world_size(); ++root) {
      const std::vector<std::string> at_root =
          group->rank() == root ? all : std::vector<std::string>();
      EXPECT_EQ(broadcast_object(*group, mine, root), object_of(root));
      EXPECT_EQ(gather_object(*group, mine, root), at_root);
      EXPECT_EQ(scatter_object_async(*group, at_root, root).get(), mine);
    }
  });
}

TEST(Objects, AResultIsHandedOverOnce) {
  test::run_ranks(test::one_node(2), [](ProcessGroup& group) {
    ObjectWork<std::string> work = broadcast_object_async(group, "configuration");
    EXPECT_EQ(work.get(), "configuration");
    try {
      (void)work.get();
      ADD_FAILURE() << "given twice";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("taken already"));
    }
  });
}

TEST(Objects, TheyGoOnWhenTheHandleIsGone) {
  test::run_ranks(test::one_node(2), [](ProcessGroup& group) {
    for (int i = 0; i < 50; ++i) {
      (void)all_gather_object_async(group, object_of(group.rank()));
    }
    EXPECT_EQ(broadcast_object(group, "after"), "after");
  });
}

// The second half of the operation starts when the size of the object has arrived. A failure there
// must reach the other ranks, which wait for the bytes.
TEST(Objects, ARankWithoutMemoryForOneTellsAll) {
  constexpr std::int64_t kTooLarge = std::numeric_limits<std::int64_t>::max();
  for (const bool is_async : {false, true}) {
    const std::vector<std::string> errors =
        test::errors_of_ranks({.nodes = {"a", "b", "a"}}, [&](ProcessGroup& group) {
          if (group.rank() == 1) {
            (void)(is_async ? broadcast_object_async(group, "").get()
                            : broadcast_object(group, ""));
            return;
          }
          std::int64_t size = kTooLarge;
          group.broadcast(as_buffer(std::span(&size, 1)));
          group.barrier();
        });
    for (const std::string& error : errors) {
      EXPECT_THAT(error,
                  HasSubstr("of the size of an object: no memory to receive an object of "
                            "9223372036854775807 bytes"))
          << (is_async ? "asynchronous" : "blocking");
    }
  }
}

TEST(Objects, ASizeThatNoObjectHasIsTold) {
  const std::vector<std::string> errors =
      test::errors_of_ranks(test::one_node(2), [](ProcessGroup& group) {
        if (group.rank() == 1) {
          (void)broadcast_object(group, "");
          return;
        }
        std::int64_t size = -1;
        group.broadcast(as_buffer(std::span(&size, 1)));
        group.barrier();
      });
  EXPECT_THAT(errors, Each(HasSubstr("a rank sent -1 as the size of its object")));
}

TEST(Objects, ALateRankIsNamedByTheAsynchronousForm) {
  std::latch is_given_up(1);
  const std::vector<std::string> errors =
      test::errors_of_ranks(test::one_node(2), [&](ProcessGroup& group) {
        if (group.rank() == 1) {
          is_given_up.wait();
          group.barrier();
          return;
        }
        ObjectWork<std::vector<std::string>> work =
            all_gather_object_async(group, "mine", {.timeout = std::chrono::milliseconds(200)});
        work.work().on_completion([&](const std::exception_ptr&) { is_given_up.count_down(); });
        (void)work.get();
      });
  EXPECT_THAT(errors.at(0),
              AllOf(HasSubstr("all_gather"), HasSubstr("objects"), HasSubstr("rank 1")));
  EXPECT_THAT(errors.at(1), HasSubstr("rank 0"));
}

TEST(Objects, AScatterNeedsOneForEachRank) {
  test::run_ranks(test::one_node(2), [](ProcessGroup& group) {
    try {
      if (group.rank() == 0) {
        (void)scatter_object(group, {"one"}, 0);
      } else {
        (void)scatter_object_async(group, {"one"}, 1);
      }
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("there are 1 objects, where a world of 2 needs one"));
    }
    EXPECT_EQ(broadcast_object(group, "fine"), "fine");
  });
}

}  // namespace
}  // namespace unisono
