// Operations that another engine carries out by its own means under the supervision of the native
// engine.
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
#include "unisono/transport/rank_table.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using engine::Engine;
using engine::Operation;
using engine::SupervisingEngine;
using ::testing::Each;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Number of polls until an operation is done; kNever: the operation never ends.
constexpr int kNever = -1;
std::atomic<int> n_looks_needed = 0;
std::atomic<int> n_begun = 0;
std::atomic<std::uint32_t> last_group = 0;

class SlowOperation final : public engine::SupervisedOperation {
 public:
  [[nodiscard]] bool meets_all() const override { return true; }

  void begin(const Operation& /*operation*/, std::uint32_t group) override {
    ++n_begun;
    last_group = group;
    n_looks_ = 0;
  }

  [[nodiscard]] bool advance() override {
    const int needed = n_looks_needed;
    return needed != kNever && n_looks_++ >= needed;
  }

 private:
  int n_looks_ = 0;
};

class SlowEngine final : public Engine {
 public:
  explicit SlowEngine(std::shared_ptr<SupervisingEngine> native) : native_(std::move(native)) {}

  void execute(const Operation& operation, TimeLimit limit, engine::Caller caller) override {
    native_->supervise(operation, limit, caller, operation_);
  }

  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override {
    return native_->allocate(count, dtype);
  }

  void check(const Operation& operation) const override { native_->check(operation); }

  void abort(const Error& reason) noexcept override { native_->abort(reason); }

  void leave() noexcept override { native_->leave(); }

 private:
  std::shared_ptr<SupervisingEngine> native_;
  SlowOperation operation_;
};

class Supervision : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  Supervision() {
    static const bool is_registered = [] {
      engine::register_backend(
          "slow",
          "looks again",
          [](const transport::RankTable&, std::shared_ptr<SupervisingEngine> native) {
            return std::make_unique<SlowEngine>(std::move(native));
          });
      return true;
    }();
    EXPECT_TRUE(is_registered);
    n_looks_needed = 0;
    n_begun = 0;
  }

  [[nodiscard]] static test::World world() { return {.nodes = GetParam(), .backend = "slow"}; }
};

TEST_P(Supervision, AdvancesUntilTheOperationIsDone) {
  for (const int needed : {0, 1, 5000}) {
    n_looks_needed = needed;
    test::run_ranks(world(), [](ProcessGroup& group) {
      group.barrier();
      group.barrier_async().wait();
    });
  }
  EXPECT_EQ(n_begun, 3 * 2 * 2);
  EXPECT_EQ(last_group, 0U);
}

TEST_P(Supervision, BeginsNothingThatRanksCallDifferently) {
  const std::vector<std::string> errors = test::errors_of_ranks(world(), [](ProcessGroup& group) {
    float value = 1;
    if (group.rank() == 0) {
      group.barrier();
    } else {
      group.all_reduce(as_buffer(std::span(&value, 1)));
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("barrier")));
  EXPECT_THAT(errors, Each(HasSubstr("all_reduce")));
  EXPECT_EQ(n_begun, 0);
}

TEST_P(Supervision, EndsWhenTimeIsUp) {
  n_looks_needed = kNever;
  const auto begin = Deadline::Clock::now();
  const std::vector<std::string> errors = test::errors_of_ranks(
      world(), [](ProcessGroup& group) { group.barrier({.timeout = 300ms}); });
  EXPECT_THAT(errors, Each(HasSubstr("timed out waiting for rank")));
  EXPECT_THAT(errors, Each(HasSubstr("barrier #1")));
  EXPECT_LT(Deadline::Clock::now() - begin, 20s);
}

TEST_P(Supervision, EndsWhenAnotherRankGivesUp) {
  n_looks_needed = kNever;
  const std::vector<std::string> errors = test::errors_of_ranks(world(), [](ProcessGroup& group) {
    if (group.rank() == 0) {
      const std::jthread quitter([&] {
        std::this_thread::sleep_for(100ms);
        group.abort("enough of it");
      });
      group.barrier();
    } else {
      group.barrier();
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("enough of it")));
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         Supervision,
                         ::testing::Values(std::vector<std::string>{"a", "a"},
                                           std::vector<std::string>{"a", "b"}));

}  // namespace
}  // namespace unisono
