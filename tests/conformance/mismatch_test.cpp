// If ranks make different calls, all ranks receive an error with both ranks and both calls.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"
#include "tested_backend.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;

struct Disagreement {
  std::string name;
  /// Text of the error; empty if a rank may have continued with another call.
  std::string heading;
  /// Call of rank 1 of 3, and call of the other ranks.
  std::function<void(ProcessGroup&)> one;
  std::function<void(ProcessGroup&)> others;
  std::string one_says;
  std::string others_say;
  /// The rank that detects the mismatch describes its own call in more detail, with one of these
  /// texts.
  std::vector<std::string> in_full = {};
  ReduceKind reduction = ReduceKind::kSum;  ///< Reduction that the backend must support.

  friend void PrintTo(const Disagreement& which, std::ostream* out) { *out << which.name; }
};

std::vector<float> values(std::size_t count) {
  return std::vector<float>(count, 1.0F);
}

void all_reduce(ProcessGroup& group, std::size_t count, ReduceOp op = {}) {
  auto data = values(count);
  group.all_reduce(as_buffer(std::span(data)), {.op = op});
}

void reduce_scatter(ProcessGroup& group, ReduceOp op) {
  auto in = values(12);
  auto out = values(4);
  group.reduce_scatter(as_buffer(std::span(in)), as_buffer(std::span(out)), {.op = op});
}

void reduce(ProcessGroup& group, int root) {
  auto data = values(4);
  const Buffer buffer = as_buffer(std::span(data));
  group.reduce(buffer, buffer, {.root = root});
}

void all_gather(ProcessGroup& group, const std::vector<std::int64_t>& counts) {
  auto in = values(static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())]));
  auto out = values(12);
  group.all_gather(as_buffer(std::span(in)), as_buffer(std::span(out)), {.counts = counts});
}

void all_reduce_coalesced(ProcessGroup& group, const std::vector<std::size_t>& counts) {
  std::vector<std::vector<float>> memory;
  memory.reserve(counts.size());
  std::vector<Buffer> buffers;
  for (const std::size_t count : counts) {
    buffers.push_back(as_buffer(std::span(memory.emplace_back(values(count)))));
  }
  group.all_reduce_coalesced(buffers);
}

void gather(ProcessGroup& group, std::size_t count, int root = 0) {
  auto in = values(count);
  auto out = values(3 * count);
  group.gather(as_buffer(std::span(in)),
               group.rank() == root ? as_buffer(std::span(out)) : Buffer(),
               {.root = root});
}

ReduceOp keep_first(const std::string& name) {
  return user_reduction({.combine =
                             [](const void* lhs, const void*, void* result, std::int64_t count) {
                               std::memmove(
                                   result, lhs, static_cast<std::size_t>(count) * sizeof(float));
                             },
                         .name = name});
}

class Mismatch : public ::testing::TestWithParam<Disagreement> {};

TEST_P(Mismatch, IsAnErrorOnEveryRankThatNamesBothCalls) {
  if (!test::capabilities().reductions.has(GetParam().reduction)) {
    GTEST_SKIP() << "backend " << test::tested_backend() << " has no reduction "
                 << to_string(GetParam().reduction);
  }
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{"a", "a", "a"}, {"a", "b", "a"}, {"a", "b", "c"}}) {
    const auto errors = test::errors_of_ranks({.nodes = nodes}, [](ProcessGroup& group) {
      group.barrier();
      (group.rank() == 1 ? GetParam().one : GetParam().others)(group);
      // A rank that did not depend on the other's call receives the error here.
      group.barrier();
    });
    EXPECT_THAT(errors,
                Each(AllOf(HasSubstr("ranks called " + GetParam().heading), HasSubstr("rank 1"))));
    EXPECT_THAT(errors, Contains(HasSubstr(GetParam().one_says)));
    EXPECT_THAT(errors, Contains(HasSubstr(GetParam().others_say)));
    EXPECT_TRUE(GetParam().in_full.empty() ||
                std::ranges::any_of(GetParam().in_full,
                                    [&](const std::string& text) {
                                      return ::testing::Matches(Contains(HasSubstr(text)))(errors);
                                    }))
        << ::testing::PrintToString(errors);
  }
}

const std::vector<Disagreement> kDisagreements{
    {"operation",
     "different operations",
     [](ProcessGroup& g) { all_reduce(g, 4); },
     [](ProcessGroup& g) { reduce(g, 0); },
     "all_reduce #2 (f32[4], sum)",
     "reduce #2 (f32[4], sum, root 0)"},
    {"dtype",
     "all_reduce with different types",
     [](ProcessGroup& g) {
       std::vector<double> doubles(4);
       g.all_reduce(as_buffer(std::span(doubles)));
     },
     [](ProcessGroup& g) { all_reduce(g, 4); },
     "all_reduce #2 (f64[4], sum)",
     "all_reduce #2 (f32[4], sum)"},
    {"reduce_operation",
     "all_reduce with different reductions",
     [](ProcessGroup& g) { all_reduce(g, 4, kMax); },
     [](ProcessGroup& g) { all_reduce(g, 4); },
     "all_reduce #2 (f32[4], max)",
     "all_reduce #2 (f32[4], sum)"},
    {"factor",
     "all_reduce with different parameters",
     [](ProcessGroup& g) { all_reduce(g, 4, premul_sum(0.5)); },
     [](ProcessGroup& g) { all_reduce(g, 4, premul_sum(0.25)); },
     "all_reduce #2 (f32[4], premul_sum 0.5)",
     "all_reduce #2 (f32[4], premul_sum 0.25)",
     {},
     ReduceKind::kPremulSum},
    {"factor_of_a_reduce_scatter",
     "reduce_scatter with different parameters",
     [](ProcessGroup& g) { reduce_scatter(g, premul_sum(0.5)); },
     [](ProcessGroup& g) { reduce_scatter(g, premul_sum(0.25)); },
     "reduce_scatter #2 (f32[12], premul_sum e832885f",
     "reduce_scatter #2 (f32[12], premul_sum d832885f",
     {},
     ReduceKind::kPremulSum},
    {"name_of_a_users_function",
     "all_reduce with different parameters",
     [](ProcessGroup& g) { all_reduce(g, 4, keep_first("one")); },
     [](ProcessGroup& g) { all_reduce(g, 4, keep_first("other")); },
     "all_reduce #2 (f32[4], user ",
     "all_reduce #2 (f32[4], user ",
     {},
     ReduceKind::kUser},
    {"root",
     "",
     [](ProcessGroup& g) { reduce(g, 2); },
     [](ProcessGroup& g) { reduce(g, 0); },
     "reduce #2 (f32[4], sum, root 2)",
     "reduce #2 (f32[4], sum, root 0)"},
    {"one_rank_ahead",
     "different operations",
     [](ProcessGroup& g) { all_reduce(g, 70000); },
     [](ProcessGroup& g) {
       g.barrier();
       all_reduce(g, 70000);
     },
     "all_reduce #2 (f32[70000], sum)",
     "barrier #2"},
    {"all_gather_block_sizes",
     "all_gather with different sizes",
     [](ProcessGroup& g) { all_gather(g, {4, 4, 4}); },
     [](ProcessGroup& g) { all_gather(g, {3, 4, 5}); },
     "all_gather #2 (f32[12]",
     " blocks of 3, ",
     {"all_gather #2 (f32[12] in 3 blocks of 4 each)",
      "all_gather #2 (f32[12] in 3 blocks of 3, 4, 5)"}},
    {"sizes_of_coalesced_buffers",
     "all_reduce_coalesced with different sizes",
     [](ProcessGroup& g) { all_reduce_coalesced(g, {3, 4, 5}); },
     [](ProcessGroup& g) { all_reduce_coalesced(g, {5, 7}); },
     "all_reduce_coalesced #2 (f32[12] in 3 buffers",
     "all_reduce_coalesced #2 (f32[12] in 2 buffers",
     {"all_reduce_coalesced #2 (f32[12] in 3 buffers of 3, 4, 5, sum)",
      "all_reduce_coalesced #2 (f32[12] in 2 buffers of 5, 7, sum)"}},
    {"gather_root",
     "",
     [](ProcessGroup& g) { gather(g, 5, 1); },
     [](ProcessGroup& g) { gather(g, 5, 0); },
     "gather #2 (f32[5], root 1)",
     "gather #2 (f32[5], root 0)"},
    {"gather_count",
     "gather with different sizes",
     [](ProcessGroup& g) { gather(g, 5); },
     [](ProcessGroup& g) { gather(g, 6); },
     "gather #2 (f32[5], root 0)",
     "gather #2 (f32[6], root 0)"},
};

INSTANTIATE_TEST_SUITE_P(Calls,
                         Mismatch,
                         ::testing::ValuesIn(kDisagreements),
                         ::testing::PrintToStringParamName());

// Simulates two threads that each make their own operations.
TEST(Mismatch, OfThreadsThatShareAGroupSaysSo) {
  const auto errors = test::errors_of_ranks(test::one_node(2), [](ProcessGroup& group) {
    group.barrier();
    std::thread other([&group] { group.barrier(); });
    other.join();
    all_reduce(group, group.rank() == 0 ? 4 : 5);
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("several threads of rank "),
                      HasSubstr("give each thread a group of its own")));
  }
}

TEST(Mismatch, EachRankNamesWhatItsCallWasFor) {
  for (const std::vector<std::string>& nodes : {std::vector<std::string>{"a", "a"}, {"a", "b"}}) {
    const auto errors = test::errors_of_ranks({.nodes = nodes}, [](ProcessGroup& group) {
      auto data = values(group.rank() == 0 ? 4 : 5);
      group.all_reduce(as_buffer(std::span(data)),
                       {.label = group.rank() == 0 ? "weights" : "bias"});
    });
    EXPECT_THAT(errors[0], HasSubstr("all_reduce #1 (f32[4], sum) of weights: "));
    EXPECT_THAT(errors[1], HasSubstr("all_reduce #1 (f32[5], sum) of bias: "));
  }
}

// Only the two ranks have these sizes.
TEST(Mismatch, ABlockThatIsNotAsLargeAsItsTakerExpectsNamesBothRanks) {
  for (const std::size_t count : {10U, 100000U}) {
    const auto errors = test::errors_of_ranks(test::one_node(3), [count](ProcessGroup& group) {
      auto in = values(3 * count);
      auto out = values(3 * count);
      const auto n = static_cast<std::int64_t>(count);
      AllToAllOptions options{.in_counts = {n, n, n}, .out_counts = {n, n, n}};
      Buffer input = as_buffer(std::span(in));
      if (group.rank() == 1) {
        options.in_counts[2] = n - 1;
        input.count = 3 * n - 1;
      }
      group.all_to_all(input, as_buffer(std::span(out)), options);
    });
    const std::string given = std::to_string(count - 1);
    const std::string taken = std::to_string(count);
    EXPECT_THAT(errors,
                Each(ContainsRegex("rank 1 \\(pid [^)]*\\) gives " + given +
                                   " elements to rank 2 \\(pid [^)]*\\), which takes " + taken)));
  }
}

TEST(Mismatch, BetweenNodesBothSidesOfAnUnevenPairAreNamed) {
  const auto errors = test::errors_of_ranks({.nodes = {"a", "b"}}, [](ProcessGroup& group) {
    auto in = values(4);
    auto out = values(4);
    AllToAllOptions options{.in_counts = {2, 2}, .out_counts = {2, 2}};
    Buffer input = as_buffer(std::span(in));
    if (group.rank() == 1) {
      options.in_counts[0] = 1;
      input.count = 3;
    }
    group.all_to_all(input, as_buffer(std::span(out)), options);
  });
  EXPECT_THAT(errors[0],
              ContainsRegex("rank 1 \\(pid.* gives 1 elements to (this rank|rank 0 \\(pid.*), "
                            "which takes 2"));
  EXPECT_THAT(errors[1],
              ContainsRegex("(this rank|rank 1 \\(pid.*) gives 1 elements to rank 0 \\(pid.*, "
                            "which takes 2"));
}

}  // namespace
}  // namespace unisono
