// Between nodes a rank may return from an operation over which other ranks disagree, if the rank
// only sends or is not affected. The rank still receives the error with both calls.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::World;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Each rank has its own node. Rank 2 passes 5 elements; the other ranks pass 4.
const World kWorld{.nodes = {"a", "b", "c"}};

constexpr int kOdd = 2;

struct Operation {
  std::string name;
  std::function<void(ProcessGroup& group, std::size_t count)> call;
  int fails;  // The rank that receives the error at once; rank 1 does not.

  friend void PrintTo(const Operation& which, std::ostream* out) { *out << which.name; }
};

const std::vector<Operation> kOperations{
    {.name = "reduce",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> data(count);
           const Buffer buffer = as_buffer(std::span(data));
           group.reduce(buffer, buffer);
         },
     .fails = 0},
    {.name = "gather",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(count);
           std::vector<float> out(static_cast<std::size_t>(group.world_size()) * count);
           group.gather(as_buffer(std::span(in)),
                        group.rank() == 0 ? as_buffer(std::span(out)) : Buffer());
         },
     .fails = 0},
    {.name = "scatter",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(static_cast<std::size_t>(group.world_size()) * count);
           std::vector<float> out(count);
           group.scatter(group.rank() == 0 ? as_buffer(std::span(in)) : Buffer(),
                         as_buffer(std::span(out)));
         },
     .fails = 2},
    {.name = "broadcast",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> data(count);
           group.broadcast(as_buffer(std::span(data)));
         },
     .fails = 2},
};

class LateMismatch : public ::testing::TestWithParam<Operation> {
 protected:
  // Ranks 0 and 1 call `next` after one rank has failed. Returns the error of rank 1.
  static std::string error_of_next_call(const std::function<void(ProcessGroup& group)>& next) {
    const Operation& operation = GetParam();
    std::latch is_rank_1_done(1);
    std::latch has_failed(1);
    const auto errors = test::errors_of_ranks(kWorld, [&](ProcessGroup& group) {
      group.barrier();
      const std::size_t count = group.rank() == kOdd ? 5 : 4;
      if (group.rank() == kOdd) {
        is_rank_1_done.wait();
      }
      try {
        operation.call(group, count);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMismatch);
        if (group.rank() == operation.fails) {
          has_failed.count_down();
        } else if (group.rank() == 1) {
          is_rank_1_done.count_down();
        }
        throw;
      }
      EXPECT_NE(group.rank(), operation.fails);
      if (group.rank() == 1) {
        is_rank_1_done.count_down();
      }
      has_failed.wait();
      next(group);
    });
    return errors[1];
  }

  static ::testing::Matcher<std::string> names_both_calls() {
    const std::string name = GetParam().name;
    return AllOf(HasSubstr("ranks called " + name + " with different sizes: "),
                 HasSubstr("called " + name + " #2 (f32[4]"),
                 HasSubstr("called " + name + " #2 (f32[5]"),
                 HasSubstr("rank 2 (pid"));
  }
};

TEST_P(LateMismatch, TheNextBarrierNamesBothCalls) {
  EXPECT_THAT(error_of_next_call([](ProcessGroup& group) { group.barrier(); }), names_both_calls());
}

TEST_P(LateMismatch, SoDoesTheSameOperationOnceMore) {
  EXPECT_THAT(error_of_next_call([](ProcessGroup& group) { GetParam().call(group, 4); }),
              names_both_calls());
}

TEST_P(LateMismatch, SoDoesTheEndOfTheGroup) {
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(error_of_next_call([](ProcessGroup& group) { group.destroy(); }), names_both_calls());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         LateMismatch,
                         ::testing::ValuesIn(kOperations),
                         ::testing::PrintToStringParamName());

// The last call of each rank before the rank leaves the group. Rank 2 passes a different count.
const std::vector<Operation> kLastCalls{
    {.name = "reduce", .call = kOperations[0].call, .fails = 0},
    {.name = "gather", .call = kOperations[1].call, .fails = 0},
    {.name = "scatter", .call = kOperations[2].call, .fails = 2},
    {.name = "broadcast", .call = kOperations[3].call, .fails = 2},
    {.name = "scatter_of_a_list",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<std::vector<float>> ins(4, std::vector<float>(4));
           std::vector<float> out(count);
           std::vector<Buffer> list;
           for (std::vector<float>& in : ins) {
             list.push_back(as_buffer(std::span(in)));
           }
           group.scatter(group.rank() == 0 ? list : std::vector<Buffer>(),
                         as_buffer(std::span(out)));
         },
     .fails = 2},
    {.name = "gather_into_a_list",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(count);
           std::vector<std::vector<float>> outs(4, std::vector<float>(4));
           std::vector<Buffer> list;
           for (std::vector<float>& out : outs) {
             list.push_back(as_buffer(std::span(out)));
           }
           group.gather(as_buffer(std::span(in)), group.rank() == 0 ? list : std::vector<Buffer>());
         },
     .fails = 2},
    {.name = "all_to_all",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(4 * count);
           std::vector<float> out(4 * count);
           group.all_to_all(as_buffer(std::span(in)), as_buffer(std::span(out)));
         },
     .fails = 2},
    {.name = "all_to_all_of_any_size",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(16);
           std::vector<float> out(12 + count);
           // The count that rank 2 expects from rank 3 differs from the count that rank 3 sends.
           const auto odd = static_cast<std::int64_t>(count);
           group.all_to_all(as_buffer(std::span(in)),
                            as_buffer(std::span(out)),
                            {.in_counts = {4, 4, 4, 4}, .out_counts = {4, 4, 4, odd}});
         },
     .fails = 2},
    {.name = "all_gather",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(count);
           std::vector<float> out(4 * count);
           group.all_gather(as_buffer(std::span(in)), as_buffer(std::span(out)));
         },
     .fails = 2},
    {.name = "all_reduce",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> data(count);
           group.all_reduce(as_buffer(std::span(data)));
         },
     .fails = 2},
    {.name = "large_all_reduce",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> data(count * 100'000);
           group.all_reduce(as_buffer(std::span(data)));
         },
     .fails = 2},
    {.name = "all_reduce_by_a_ring",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> data(count - 4);  // No elements on some ranks.
           group.all_reduce(as_buffer(std::span(data)), {.algorithm = Algorithm::kRing});
         },
     .fails = 2},
    {.name = "reduce_scatter",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(4 * count);
           std::vector<float> out(count);
           group.reduce_scatter(as_buffer(std::span(in)), as_buffer(std::span(out)));
         },
     .fails = 2},
    {.name = "all_reduce_coalesced",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> data(4);
           std::vector<float> more(count);
           group.all_reduce_coalesced(
               std::vector{as_buffer(std::span(data)), as_buffer(std::span(more))});
         },
     .fails = 2},
    {.name = "all_gather_coalesced",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(count);
           std::vector<float> out(4 * count);
           group.all_gather_coalesced(std::vector{as_buffer(std::span(in))},
                                      std::vector{as_buffer(std::span(out))});
         },
     .fails = 2},
    {.name = "reduce_scatter_coalesced",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(4 * count);
           std::vector<float> out(count);
           group.reduce_scatter_coalesced(std::vector{as_buffer(std::span(in))},
                                          std::vector{as_buffer(std::span(out))});
         },
     .fails = 2},
};

class LastCall : public ::testing::TestWithParam<std::tuple<Operation, World>> {};

// Each rank comes last once.
TEST_P(LastCall, ThatDiffersIsAnErrorOnEveryRank) {
  const auto& [operation, world] = GetParam();
  for (int late = 0; late < 4; ++late) {
    const auto errors = test::errors_of_ranks(world, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      operation.call(group, group.rank() == kOdd ? 5 : 4);
    });
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                  HasSubstr(rank == kOdd ? "[rank 2/4]" : "rank 2 (pid"))
          << "rank " << rank << ", late: rank " << late;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         LastCall,
                         ::testing::Combine(::testing::ValuesIn(kLastCalls),
                                            ::testing::Values(World{.nodes = {"a", "a", "a", "a"}},
                                                              World{.nodes = {"a", "b", "c", "d"}},
                                                              World{.nodes = {"a", "a", "b", "b"}},
                                                              World{
                                                                  .nodes = {"a", "b", "a", "b"}})),
                         [](const auto& param) {
                           return std::get<0>(param.param).name + "_" +
                                  ::testing::PrintToString(std::get<1>(param.param));
                         });

// A rank waits in another operation than the operation in which the others have ended.
TEST(LastCallOfARoot, IsComparedWithWhatOthersWaitIn) {
  const World world{.nodes = {"a", "b"}};
  const auto errors = test::errors_of_ranks(world, [](ProcessGroup& group) {
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    group.barrier();
    if (group.rank() == 0) {
      group.broadcast(buffer);
    } else {
      group.reduce(buffer, buffer, {.root = 1});
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("broadcast #2"), HasSubstr("reduce #2")));
  }
}

TEST(LastCallThatOnlySends, IsNotWaitedForLongerThanAFewSeconds) {
  std::latch has_left(1);
  test::run_ranks(World{.nodes = {"a", "b"}}, [&](ProcessGroup& group) {
    float value = 0;
    group.barrier();  // Opens the connection.
    if (group.rank() == 1) {
      has_left.wait();
      return;
    }
    const Buffer buffer = as_buffer(std::span(&value, 1));
    group.reduce(buffer, buffer, {.root = 1});
    const auto begin = std::chrono::steady_clock::now();
    group.destroy();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    has_left.count_down();
  });
}

// Rank 2 has sent its contribution to another root, which waits for no rank, and calls another
// group.
TEST(LateMismatch, IsFoundThoughWhoIsWrongHasGoneOnInAnotherGroup) {
  const World world{.nodes = {"a", "b", "c"}, .environment = {{"UNISONO_STALL_SECONDS", "0.3"}}};
  const auto errors = test::errors_of_ranks(world, [](ProcessGroup& group) {
    const auto all = group.new_group(std::vector{0, 1, 2});
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    all->reduce(buffer, buffer, {.root = group.rank() == 2 ? 1 : 0});
    group.barrier();
  });
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("ranks called reduce with different roots: "),
                    HasSubstr("called reduce #1 (f32[1], sum, root 0)"),
                    HasSubstr("called reduce #1 (f32[1], sum, root 1)"),
                    HasSubstr("rank 2 (pid")));
}

}  // namespace
}  // namespace unisono
