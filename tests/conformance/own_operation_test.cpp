// An operation that ProcessGroup does not provide, in a backend that the program has registered: an
// inclusive scan, called as an all_reduce with a user function named "scan".
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using engine::Engine;
using engine::MessageCall;
using engine::Operation;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using transport::OperationKind;

// Implements scans and delegates other operations to the native engine.
class ScanningEngine final : public Engine {
 public:
  ScanningEngine(const transport::RankTable& roster, std::shared_ptr<Engine> native)
      : rank_(static_cast<std::size_t>(roster.rank)),
        world_size_(static_cast<std::size_t>(roster.world_size())),
        native_(std::move(native)) {}

  void execute(const Operation& operation, TimeLimit limit, engine::Caller caller) override {
    const bool is_scan = operation.descriptor.kind == OperationKind::kAllReduce &&
                         operation.user != nullptr && operation.user->name == "scan";
    if (is_scan) {
      scan(operation, limit, caller);
    } else {
      native_->execute(operation, limit, caller);
    }
  }

  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override {
    return native_->allocate(count, dtype);
  }

  void check(const Operation& operation) const override { native_->check(operation); }

  int pass_message(const MessageCall& call) override { return native_->pass_message(call); }

  void begin_messages(std::span<const MessageCall> calls) override {
    native_->begin_messages(calls);
  }

  void abort(const Error& reason) noexcept override { native_->abort(reason); }

  void leave() noexcept override { native_->leave(); }

 private:
  // Gathers the blocks of all ranks and combines this rank's block with the blocks of earlier
  // ranks. The descriptor contains the reduction and its name, so an all_gather of the same size on
  // another rank is a mismatch.
  void scan(const Operation& operation, TimeLimit limit, engine::Caller caller) {
    const auto n_bytes = static_cast<std::size_t>(operation.in.n_bytes());
    std::vector<std::byte> memory(world_size_ * n_bytes);
    Operation gather;
    gather.sequence = operation.sequence;
    gather.label = operation.label;
    gather.in = operation.in;
    for (std::size_t rank = 0; rank < world_size_; ++rank) {
      gather.outs.push_back(operation.in);
      gather.outs.back().data = memory.data() + rank * n_bytes;
    }
    const auto fingerprint = static_cast<std::uint32_t>(operation.descriptor.detail >> 32U);
    gather.descriptor = {
        .kind = OperationKind::kAllGather,
        .dtype = operation.descriptor.dtype,
        .reduce = operation.descriptor.reduce,
        .count = operation.descriptor.count * static_cast<std::int64_t>(world_size_),
        .detail = transport::BlockDetail{.fingerprint = fingerprint}.pack()};
    native_->execute(gather, limit, caller);
    std::byte* const sum = memory.data();
    for (std::size_t rank = 1; rank <= rank_; ++rank) {
      operation.user->combine(sum, gather.outs[rank].data, sum, operation.in.count);
    }
    if (n_bytes > 0) {
      std::memcpy(operation.out.data, sum, n_bytes);
    }
  }

  std::size_t rank_;
  std::size_t world_size_;
  std::shared_ptr<Engine> native_;
};

test::World scanning(const std::vector<std::string>& nodes) {
  static const bool is_registered = [] {
    engine::register_backend(
        "scanning",
        "has scans",
        [](const transport::RankTable& roster, std::shared_ptr<Engine> native) {
          return std::make_unique<ScanningEngine>(roster, std::move(native));
        });
    return true;
  }();
  EXPECT_TRUE(is_registered);
  return {.nodes = nodes, .backend = "scanning"};
}

// Returns a reduction that is neither commutative nor associative: its result shows the order in
// which ranks were combined.
ReduceOp shift_and_add(const std::string& name) {
  return user_reduction(
      {.combine =
           [](const void* lhs, const void* rhs, void* result, std::int64_t count) {
             const auto* const a = static_cast<const std::int64_t*>(lhs);
             const auto* const b = static_cast<const std::int64_t*>(rhs);
             for (std::int64_t i = 0; i < count; ++i) {
               static_cast<std::int64_t*>(result)[i] = 10 * a[i] + b[i];
             }
           },
       .name = name});
}

// Returns the expected result; for rank 2 the steps are 1, 12 and 123.
std::int64_t shifted_and_added(int rank) {
  std::int64_t sum = 0;
  for (int before = 0; before <= rank; ++before) {
    sum = 10 * sum + before + 1;
  }
  return sum;
}

TEST(OwnOperation, GivesEachRankWhatItAndThoseBeforeItHave) {
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{"a"}, {"a", "a", "a", "a"}, {"a", "a", "b"}, {"a", "b", "c"}}) {
    test::run_ranks(scanning(nodes), [](ProcessGroup& group) {
      const ReduceOp op = shift_and_add("scan");
      for (const std::size_t count : {0U, 1U, 10'000U}) {
        std::vector<std::int64_t> values(count, group.rank() + 1);
        std::vector<std::int64_t> sums(count);
        group.all_reduce(as_buffer(std::span(values)), as_buffer(std::span(sums)), {.op = op});
        EXPECT_THAT(values, Each(group.rank() + 1));
        EXPECT_THAT(sums, Each(shifted_and_added(group.rank())));
        group.all_reduce_async(as_buffer(std::span(values)), {.op = op}).wait();
        EXPECT_EQ(values, sums);
        // Other operations are unchanged.
        group.all_reduce(as_buffer(std::span(values)));
        group.barrier();
      }
    });
  }
}

TEST(OwnOperation, WhoCallsAnotherIsNamedOnEveryRank) {
  const auto errors_if_rank_1 = [](const auto& call) {
    return test::errors_of_ranks(scanning({"a", "a", "b"}), [&](ProcessGroup& group) {
      std::vector<std::int64_t> value(1, group.rank());
      const Buffer buffer = as_buffer(std::span(value));
      if (group.rank() == 1) {
        call(group, buffer);
      } else {
        group.all_reduce(buffer, {.op = shift_and_add("scan")});
      }
      // A rank that did not depend on the other's call receives the error here.
      group.barrier();
    });
  };
  const auto are_told = [](const std::string& heading) {
    return Each(AllOf(HasSubstr("ranks called " + heading), HasSubstr("rank 1")));
  };
  for (const ReduceOp& op : {kSum, shift_and_add("another")}) {
    const auto errors = errors_if_rank_1(
        [&](ProcessGroup& group, const Buffer& buffer) { group.all_reduce(buffer, {.op = op}); });
    EXPECT_THAT(errors, are_told("different operations"));
    EXPECT_THAT(errors, Contains(AllOf(HasSubstr("all_gather #1"), HasSubstr("all_reduce #1"))));
  }
  // Has the same size as the all_gather of the scan.
  EXPECT_THAT(errors_if_rank_1([](ProcessGroup& group, const Buffer& buffer) {
                std::vector<std::int64_t> all(3);
                group.all_gather(buffer, as_buffer(std::span(all)));
              }),
              are_told("all_gather with different reductions"));
}

}  // namespace
}  // namespace unisono
