// UNISONO_BACKEND_FALLBACK: ranks that can't have the requested backend.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/rank_table.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using engine::Engine;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::atomic<int> n_executed = 0;

// Engine of a rank that can have its requested backend.
class NotingEngine final : public Engine {
 public:
  explicit NotingEngine(std::shared_ptr<Engine> native) : native_(std::move(native)) {}

  void execute(const engine::Operation& operation,
               TimeLimit limit,
               engine::Caller caller) override {
    ++n_executed;
    native_->execute(operation, limit, caller);
  }

  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override {
    return native_->allocate(count, dtype);
  }

  void check(const engine::Operation& operation) const override { native_->check(operation); }

  void abort(const Error& reason) noexcept override { native_->abort(reason); }

  void leave() noexcept override { native_->leave(); }

 private:
  std::shared_ptr<Engine> native_;
};

class BackendFallback : public ::testing::Test {
 protected:
  BackendFallback() {
    static const bool is_registered = [] {
      engine::register_backend(
          "noting", "notes", [](const transport::RankTable&, std::shared_ptr<Engine> native) {
            return std::make_unique<NotingEngine>(std::move(native));
          });
      return true;
    }();
    EXPECT_TRUE(is_registered);
    n_executed = 0;
  }
};

// Backend gloo belongs to PyTorch and is not available in this program.
test::World ranks_without_gloo(std::map<int, std::string> backends, const std::string& fallback) {
  return {.nodes = {"a", "a", "b"},
          .environment = {{"UNISONO_BACKEND_FALLBACK", fallback}},
          .backend = "noting",
          .own_backend = std::move(backends)};
}

void sum_ones(ProcessGroup& group) {
  float value = 1;
  group.all_reduce(as_buffer(std::span(&value, 1)));
  EXPECT_EQ(value, 3);
}

const std::string kGlooProblem =
    "backend gloo can't be used here: Gloo is a library inside of PyTorch; use backend unisono, "
    "the default of InitOptions::backend, whose native engine has all of Gloo's operations on "
    "CPUs, "
    "by shared memory inside a node and tcp between nodes (in Python, "
    "unisono.Options(engine=\"gloo\") takes PyTorch's Gloo)";

TEST_F(BackendFallback, IsTheNativeBackendOfAllRanks) {
  ::testing::internal::CaptureStderr();
  run_ranks(ranks_without_gloo({{1, "gloo"}}, "on"), sum_ones);
  EXPECT_EQ(n_executed, 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("[unisono rank 0] warning: " + kGlooProblem +
                              " (rank 1); all ranks use backend unisono instead, as "
                              "UNISONO_BACKEND_FALLBACK allows\n"),
                    Not(HasSubstr("[unisono rank 1]")),
                    Not(HasSubstr("[unisono rank 2]"))));
}

TEST_F(BackendFallback, HappensOnlyWhereARankNeedsIt) {
  ::testing::internal::CaptureStderr();
  run_ranks(ranks_without_gloo({{1, "unisono"}}, "on"), sum_ones);
  EXPECT_EQ(n_executed, 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(BackendFallback, NamesEachRankThatNeedsIt) {
  ::testing::internal::CaptureStderr();
  run_ranks(ranks_without_gloo({{0, "gloo"}, {2, "gloo"}}, "on"), sum_ones);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("(ranks 0, 2); all ranks use"));
}

TEST_F(BackendFallback, IsOffUnlessAskedFor) {
  test::World world = ranks_without_gloo({}, "off");
  world.backend = "gloo";
  EXPECT_THAT(errors_of_ranks(world, sum_ones), Each("init_process_group: " + kGlooProblem));
  world.environment.clear();
  EXPECT_THAT(errors_of_ranks(world, sum_ones), Each("init_process_group: " + kGlooProblem));
}

// Rank 0 could continue with its own backend, and rank 1 with the native backend.
TEST_F(BackendFallback, ThatOneRankForbidsEndsTheStartOfAll) {
  test::World world = ranks_without_gloo({{1, "gloo"}, {2, "unisono"}}, "on");
  world.own_environment = {{0, {{"UNISONO_BACKEND_FALLBACK", "off"}}},
                           {2, {{"UNISONO_BACKEND_FALLBACK", "off"}}}};
  const auto errors = errors_of_ranks(world, sum_ones);
  EXPECT_EQ(errors.size(), 3U);
  EXPECT_THAT(
      errors,
      Each(AllOf(
          StartsWith(
              "rendezvous: some ranks need a fallback to backend unisono, which is not allowed: " +
              kGlooProblem + " on rank 1 (pid"),
          // Rank 2 requests the native backend, so no fallback applies to rank 2.
          HasSubstr("; set UNISONO_BACKEND_FALLBACK=on on rank 0 (pid"),
          EndsWith(" as well, or on none"),
          Not(HasSubstr("rank 2")))));
  EXPECT_EQ(n_executed, 0);
}

TEST_F(BackendFallback, IsNoneForANameThatIsNoBackends) {
  test::World world = ranks_without_gloo({}, "on");
  world.backend = "ncll";
  EXPECT_THAT(errors_of_ranks(world, sum_ones),
              Each(HasSubstr("init_process_group: there is no backend \"ncll\"; there is ")));
}

TEST_F(BackendFallback, OfAnotherValueThanOnOrOffIsRefusedFirst) {
  test::World world = ranks_without_gloo({}, "1");
  world.backend = "gloo";
  EXPECT_THAT(errors_of_ranks(world, sum_ones),
              Each(HasSubstr("UNISONO_BACKEND_FALLBACK=\"1\" is not off or on")));
}

}  // namespace
}  // namespace unisono
