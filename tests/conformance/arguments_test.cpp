// Wrong arguments of any operation are rejected before any transfer, with a message that names the
// argument. The group stays usable.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
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

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A world of two ranks, and buffers for calls.
struct Fixture {
  ProcessGroup& group;
  std::vector<float> four = std::vector<float>(4);
  std::vector<float> two = std::vector<float>(2);
  std::vector<double> doubles = std::vector<double>(2);

  [[nodiscard]] Buffer whole() { return as_buffer(std::span(four)); }

  [[nodiscard]] Buffer block() { return as_buffer(std::span(two)); }

  [[nodiscard]] Buffer other_dtype() { return as_buffer(std::span(doubles)); }

  // Returns the block of a rank within whole().
  [[nodiscard]] Buffer part(int rank) {
    return as_buffer(std::span(four).subspan(2 * static_cast<std::size_t>(rank), 2));
  }
};

struct WrongCall {
  std::string name;
  std::function<void(Fixture&)> call;
  std::string says;

  friend void PrintTo(const WrongCall& wrong, std::ostream* out) { *out << wrong.name; }
};

class WrongArguments : public ::testing::TestWithParam<WrongCall> {};

TEST_P(WrongArguments, AreRefusedAndTheGroupGoesOn) {
  test::run_ranks(test::one_node(2), [](ProcessGroup& group) {
    Fixture fixture{.group = group};
    try {
      GetParam().call(fixture);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_THAT(error.what(), StartsWith("[rank " + std::to_string(group.rank()) + "/2] "));
      EXPECT_THAT(error.what(), HasSubstr(GetParam().says));
    }
    float one = 1;
    group.all_reduce(as_buffer(std::span(&one, 1)));
    EXPECT_EQ(one, 2.0F);
  });
}

const std::vector<WrongCall> kWrongCalls{
    {"all_reduce_of_more_bytes_than_can_be_counted",
     [](Fixture& f) {
       Buffer buffer = f.block();
       buffer.count = std::numeric_limits<std::int64_t>::max() / 2;
       f.group.all_reduce(buffer);
     },
     "all_reduce: in's count is 4611686018427387903, more than any memory has room for"},
    {"reduce_root",
     [](Fixture& f) { f.group.reduce(f.block(), f.block(), {.root = 2}); },
     "reduce: root 2 is outside a world of 2"},
    {"all_reduce_of_what_has_no_meaning",
     [](Fixture& f) { f.group.all_reduce(f.block(), {.op = kBand, .label = "flags"}); },
     "all_reduce of flags: band is not defined for elements of f32; it is for integers and bool"},
    {"reduce_out_missing_on_root",
     [](Fixture& f) { f.group.reduce(f.block(), Buffer(), {.root = f.group.rank()}); },
     "out has 0 elements, where 2 are expected"},
    {"reduce_in_and_out_overlap",
     [](Fixture& f) {
       f.group.reduce(
           f.part(0), as_buffer(std::span(f.four).subspan(1, 2)), {.root = f.group.rank()});
     },
     "in and out overlap"},
    {"reduce_scatter_odd",
     [](Fixture& f) {
       f.group.reduce_scatter(as_buffer(std::span(f.four).first(3)), f.block(), {.label = "grad"});
     },
     "reduce_scatter of grad: in has 3 elements, which can't be divided equally among a world of "
     "2"},
    {"reduce_scatter_out_too_large",
     [](Fixture& f) { f.group.reduce_scatter(f.whole(), f.whole()); },
     "out has 4 elements, where 2 are expected"},
    {"reduce_scatter_counts_do_not_fill",
     [](Fixture& f) { f.group.reduce_scatter(f.whole(), f.block(), {.counts = {2, 1}}); },
     "in has 4 elements, and the counts make 3"},
    {"reduce_scatter_out_is_anothers_block",
     [](Fixture& f) { f.group.reduce_scatter(f.whole(), f.part(1 - f.group.rank())); },
     "overlap"},
    {"all_gather_count_negative",
     [](Fixture& f) { f.group.all_gather(f.block(), f.whole(), {.counts = {5, -1}}); },
     "the count of rank 1 is -1"},
    {"all_gather_counts_too_few",
     [](Fixture& f) { f.group.all_gather(f.block(), f.whole(), {.counts = {4}}); },
     "there are 1 counts, where a world of 2 needs one per rank"},
    {"all_gather_dtype",
     [](Fixture& f) { f.group.all_gather(f.other_dtype(), f.whole()); },
     "out is of f32, where f64 is expected"},
    {"all_gather_list_too_short",
     [](Fixture& f) { f.group.all_gather(f.block(), std::vector<Buffer>{f.block()}); },
     "out has 1 buffers, where a world of 2 needs one per rank"},
    {"all_gather_list_dtype",
     [](Fixture& f) {
       f.group.all_gather(f.block(), std::vector<Buffer>{f.part(0), f.other_dtype()});
     },
     "out[1] is of f64, where f32 is expected"},
    {"all_gather_in_is_anothers_block",
     [](Fixture& f) { f.group.all_gather(f.part(1 - f.group.rank()), f.whole()); },
     "overlap"},
    {"all_gather_outputs_overlap",
     [](Fixture& f) { f.group.all_gather(f.block(), std::vector<Buffer>{f.part(0), f.part(0)}); },
     "out[0] and out[1] overlap"},
    {"gather_list_on_every_rank",
     [](Fixture& f) {
       f.group.gather(
           f.block(), std::vector<Buffer>{f.part(0), f.part(1)}, {.root = 1 - f.group.rank()});
     },
     "out is for the root alone"},
    {"gather_buffer_on_every_rank",
     [](Fixture& f) { f.group.gather(f.block(), f.whole(), {.root = 1 - f.group.rank()}); },
     "out is for the root alone"},
    {"gather_list_missing_on_root",
     [](Fixture& f) { f.group.gather(f.block(), std::vector<Buffer>(), {.root = f.group.rank()}); },
     "out has 0 buffers"},
    {"scatter_list_too_long",
     [](Fixture& f) {
       f.group.scatter(std::vector<Buffer>{f.part(0), f.part(1), f.part(0)},
                       f.block(),
                       {.root = f.group.rank()});
     },
     "in has 3 buffers, where a world of 2 needs one per rank"},
    {"scatter_own_block_has_another_size",
     [](Fixture& f) {
       std::vector<Buffer> blocks{f.part(0), f.part(1)};
       blocks[static_cast<std::size_t>(f.group.rank())].count = 1;
       f.group.scatter(blocks, f.block(), {.root = f.group.rank()});
     },
     "out has 2 elements, where 1 are expected"},
    {"scatter_in_on_every_rank",
     [](Fixture& f) { f.group.scatter(f.whole(), f.block(), {.root = 1 - f.group.rank()}); },
     "in is for the root alone"},
    {"all_to_all_in_place",
     [](Fixture& f) { f.group.all_to_all(f.whole(), f.whole()); },
     "overlap"},
    {"all_to_all_half_the_counts",
     [](Fixture& f) { f.group.all_to_all(f.whole(), f.whole(), {.in_counts = {2, 2}}); },
     "pass both in_counts and out_counts"},
    {"all_to_all_own_block",
     [](Fixture& f) {
       std::vector<Buffer> ins{f.part(0), f.part(1)};
       std::vector<float> out(4);
       std::vector<Buffer> outs(2, as_buffer(std::span(out).first(1)));
       outs[1].data = out.data() + 2;
       f.group.all_to_all(ins, outs);
     },
     "own block of out has 1 elements, where 2 are expected"},
    {"all_to_all_of_a_list_into_a_buffer",
     [](Fixture& f) {
       std::vector<float> out(4);
       f.group.all_to_all(std::vector<Buffer>{f.part(0), f.part(1)}, as_buffer(std::span(out)));
     },
     "one of in and out is a list, the other is not"},
    {"all_to_all_of_a_buffer_into_a_list",
     [](Fixture& f) {
       std::vector<float> out(4);
       const std::array outs{as_buffer(std::span(out).first(2)), as_buffer(std::span(out).last(2))};
       f.group.all_to_all(f.whole(), outs);
     },
     "one of in and out is a list, the other is not"},
    {"barrier_timeout",
     [](Fixture& f) { f.group.barrier({.timeout = std::chrono::milliseconds(-1)}); },
     "barrier: the timeout is -1 ms"},
    {"barrier_timeout_with_a_label_on_the_heap",
     [](Fixture& f) {
       f.group.barrier({.timeout = std::chrono::milliseconds(0), .label = std::string(100, 'a')});
     },
     "the timeout is 0 ms"},
    {"all_reduce_timeout",
     [](Fixture& f) {
       const auto owner = std::make_shared<std::vector<float>>(2);
       Buffer buffer = as_buffer(std::span(*owner));
       buffer.owner = owner;
       EXPECT_THROW(f.group.all_reduce_async(buffer, {.timeout = std::chrono::milliseconds(0)}),
                    Error);
       buffer.owner = nullptr;
       EXPECT_EQ(owner.use_count(), 1);
       f.group.all_reduce_async(buffer, {.timeout = std::chrono::milliseconds(0)});
     },
     "all_reduce: the timeout is 0 ms"},
    {"all_gather_timeout",
     [](Fixture& f) {
       f.group.all_gather(f.block(), f.whole(), {.timeout = std::chrono::milliseconds(0)});
     },
     "all_gather: the timeout is 0 ms"},
};

INSTANTIATE_TEST_SUITE_P(Calls,
                         WrongArguments,
                         ::testing::ValuesIn(kWrongCalls),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace unisono
