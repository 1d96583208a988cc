// Groups with a backend that the program has registered.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
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
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using test::errors_of_ranks;
using test::run_ranks;

std::atomic<int> n_executed = 0;
std::atomic<std::size_t> n_messages = 0;

// Implements barriers itself and delegates other operations to the native engine. Rejects products.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(std::shared_ptr<Engine> native) : native_(std::move(native)) {}

  void execute(const Operation& operation, TimeLimit limit, engine::Caller caller) override {
    ++n_executed;
    if (operation.descriptor.kind != transport::OperationKind::kBarrier) {
      native_->execute(operation, limit, caller);
      return;
    }
    float value = 1;
    Operation sum{.descriptor = {.kind = transport::OperationKind::kAllReduce, .count = 1},
                  .sequence = operation.sequence,
                  .in = as_buffer(std::span(&value, 1)),
                  .out = as_buffer(std::span(&value, 1))};
    native_->execute(sum, limit, caller);
  }

  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override {
    return native_->allocate(count, dtype);
  }

  void check(const Operation& operation) const override {
    if (operation.descriptor.reduce == ReduceKind::kProduct) {
      throw Error(ErrorCode::kInvalidArgument, "the counting backend knows no products");
    }
    native_->check(operation);
  }

  int pass_message(const MessageCall& call) override {
    ++n_messages;
    return native_->pass_message(call);
  }

  void begin_messages(std::span<const MessageCall> calls) override {
    n_messages += calls.size();
    native_->begin_messages(calls);
  }

  void abort(const Error& reason) noexcept override { native_->abort(reason); }

  void leave() noexcept override { native_->leave(); }

 private:
  std::shared_ptr<Engine> native_;
};

// Does not use the native engine, and does not support messages.
class AloneEngine final : public Engine {
 public:
  void execute(const Operation& /*operation*/,
               TimeLimit /*limit*/,
               engine::Caller /*caller*/) override {
    ++n_executed;
  }

  [[nodiscard]] Buffer allocate(std::int64_t /*count*/, DType /*dtype*/) override {
    throw Error(ErrorCode::kSystem, "it has no memory");
  }

  void check(const Operation& /*operation*/) const override {}

  void abort(const Error& /*reason*/) noexcept override {}

  void leave() noexcept override {}
};

void expect_no_messages(const std::string& backend, const std::string& problem) {
  n_executed = 0;
  run_ranks({.nodes = {"a", "a", "b"}, .backend = backend}, [&](ProcessGroup& group) {
    float value = 1;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    const auto refuses = [&](const std::string& call) {
      return ThrowsMessage<Error>(fmt::format("[rank {}/3] {}: {}", group.rank(), call, problem));
    };
    EXPECT_THAT([&] { group.send(buffer, 0, {.label = "weights"}); }, refuses("send of weights"));
    EXPECT_THAT([&] { (void)group.recv(buffer, 0); }, refuses("recv"));
    EXPECT_THAT([&] { (void)group.send_async(buffer, 0); }, refuses("send"));
    EXPECT_THAT([&] { (void)group.batch({}); }, refuses("batch"));
    // A rejected message does not close the group.
    group.barrier();
  });
  EXPECT_EQ(n_executed, 3);
}

class OwnBackend : public ::testing::Test {
 protected:
  OwnBackend() {
    static const bool is_registered = [] {
      engine::register_backend(
          "counting", "counts", [](const transport::RankTable&, std::shared_ptr<Engine> native) {
            return std::make_unique<CountingEngine>(std::move(native));
          });
      const auto make_alone = [](const transport::RankTable&, const std::shared_ptr<Engine>&) {
        return std::make_unique<AloneEngine>();
      };
      engine::register_backend("alone", "needs nobody", make_alone);
      engine::register_backend("mute", "says so", make_alone, {.passes_messages = false});
      engine::register_backend(
          "idle", "makes nothing", [](const transport::RankTable&, std::shared_ptr<Engine>) {
            return nullptr;
          });
      engine::register_backend(
          "broken",
          "throws",
          [](const transport::RankTable& roster,
             std::shared_ptr<Engine>) -> std::shared_ptr<Engine> {
            throw Error(ErrorCode::kSystem,
                        "no device for rank " + std::to_string(roster.self().job_rank));
          });
      return true;
    }();
    EXPECT_TRUE(is_registered);
    n_executed = 0;
    n_messages = 0;
  }
};

const test::World kCounting{.nodes = {"a", "a", "b"}, .backend = "counting"};

TEST_F(OwnBackend, CarriesOutTheGroupsOperations) {
  run_ranks(kCounting, [](ProcessGroup& group) {
    std::vector<float> ones(1000, 1.0F);
    group.all_reduce(as_buffer(std::span(ones)));
    EXPECT_THAT(ones, Each(3.0F));
    group.barrier_async().wait();
    group.broadcast(as_buffer(std::span(ones)), {.root = 2});
  });
  EXPECT_EQ(n_executed, 3 * 3);
}

TEST_F(OwnBackend, IsThatOfItsGroupsGroups) {
  run_ranks(kCounting, [](ProcessGroup& group) {
    const auto pair = group.new_group(std::vector<int>{0, 2});
    group.barrier();
    const int n_before = n_executed;
    group.barrier();
    if (pair != nullptr) {
      float value = 1;
      pair->all_reduce(as_buffer(std::span(&value, 1)));
      EXPECT_EQ(value, 2);
      EXPECT_GT(n_executed, n_before);
    }
  });
}

TEST_F(OwnBackend, MessagesPassInItsGroups) {
  run_ranks(kCounting, [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % group.world_size();
    const int previous = (group.rank() + group.world_size() - 1) % group.world_size();
    for (const std::size_t count : {0U, 1U, 100'000U}) {
      std::vector<std::int64_t> mine(count, group.rank());
      std::vector<std::int64_t> theirs(count, -1);
      const Work sent = group.send_async(as_buffer(std::span(mine)), next, {.tag = 5});
      EXPECT_EQ(group.recv(as_buffer(std::span(theirs)), kAnySource, {.tag = 5}), previous);
      sent.wait();
      EXPECT_THAT(theirs, Each(previous));
      group.barrier();
    }
  });
  EXPECT_EQ(n_messages, 3U * 3U * 2U);
}

// A backend declares the lack of messages in its capabilities, or its engine rejects messages.
TEST_F(OwnBackend, RefusesMessagesThatItPassesNot) {
  expect_no_messages("alone", "the group's backend does not support messages");
  expect_no_messages("mute",
                     "backend mute does not support messages; make the group with backend unisono, "
                     "which has them");
}

// The group still uses the native engine to watch its ranks after this backend has released that
// engine.
TEST_F(OwnBackend, ThatDropsTheNativeEngineStillHearsOfAFailure) {
  const auto errors =
      errors_of_ranks({.nodes = {"a", "a", "a"}, .backend = "alone"}, [](ProcessGroup& group) {
        group.barrier();
        if (group.rank() == 1) {
          group.abort("it is enough");
        }
        // Barriers of this backend do not wait for other ranks.
        const Deadline deadline = Deadline::after(std::chrono::seconds(20));
        while (!deadline.has_passed()) {
          group.barrier();
          std::this_thread::yield();
        }
      });
  EXPECT_THAT(errors, Each(HasSubstr("it is enough")));
}

TEST_F(OwnBackend, SaysWhatItCantDo) {
  run_ranks(kCounting, [](ProcessGroup& group) {
    float value = 1;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    EXPECT_THAT(
        [&] { group.all_reduce(buffer, {.op = kProduct}); },
        ThrowsMessage<Error>(fmt::format(
            "[rank {}/3] all_reduce: the counting backend knows no products", group.rank())));
    group.all_reduce(buffer);
    EXPECT_EQ(value, 3);
  });
}

TEST_F(OwnBackend, ThatMakesNoEngineEndsTheStart) {
  const auto do_nothing = [](ProcessGroup&) { ADD_FAILURE() << "there is a group"; };
  const auto idle = errors_of_ranks({.nodes = {"a", "a", "b"}, .backend = "idle"}, do_nothing);
  EXPECT_THAT(idle, Each(HasSubstr("backend idle made no engine")));
  const auto broken = errors_of_ranks({.nodes = {"a", "a", "b"}, .backend = "broken"}, do_nothing);
  EXPECT_THAT(broken, Each(HasSubstr("no device for rank")));
}

}  // namespace
}  // namespace unisono
