#include "unisono/launch/nodes/node_rendezvous.h"

#include <chrono>
#include <utility>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::launch::nodes {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The coordinator's node has number 1 and joins first, unless a test uses another order.
class Job {
 public:
  explicit Job(const RendezvousOptions& options) : options_(options), rendezvous_(options, now_) {}

  void join(std::uint64_t node, int n_workers = 2, int wanted_rank = -1) {
    rendezvous_.take(node,
                     Join{.host = "host" + std::to_string(node),
                          .pid = static_cast<int>(node),
                          .n_workers = n_workers,
                          .wanted_rank = wanted_rank,
                          .min_nodes = options_.min_nodes,
                          .max_nodes = options_.max_nodes,
                          .is_coordinator = node == 1,
                          .stall_ms = options_.stall_timeout.count()},
                     now_);
    collect();
  }

  void take(std::uint64_t node, const Message& message) {
    rendezvous_.take(node, message, now_);
    collect();
  }

  void lose(std::uint64_t node) {
    rendezvous_.lose(node, "cut", now_);
    collect();
  }

  void pass(milliseconds time) {
    now_ += time;
    rendezvous_.on_time(now_);
    collect();
  }

  // Advances the time to the next due event, or not at all if no event is due.
  void pass_until_due() {
    const NodeRendezvous::Time due = rendezvous_.next_due();
    now_ = due == NodeRendezvous::Time::max() ? now_ : due;
    rendezvous_.on_time(now_);
    collect();
  }

  // Returns the last message of this type to the node since the last call.
  template <class T>
  std::optional<T> last(std::uint64_t node) {
    std::optional<T> found;
    for (const Message& message : sent_[node]) {
      if (const auto* const typed = std::get_if<T>(&message)) {
        found = *typed;
      }
    }
    if (found) {
      sent_[node].clear();
    }
    return found;
  }

  [[nodiscard]] const NodeRendezvous& rendezvous() const { return rendezvous_; }

 private:
  void collect() {
    for (NodeRendezvous::Order& order : rendezvous_.take_orders()) {
      sent_[order.node].push_back(std::move(order.message));
    }
  }

  RendezvousOptions options_;
  NodeRendezvous::Time now_{};
  NodeRendezvous rendezvous_;
  std::map<std::uint64_t, std::vector<Message>> sent_;
};

TEST(NodeRendezvous, RanksAreGivenInTheOrderOfComing) {
  Job job({.min_nodes = 3, .max_nodes = 3, .run_id = "night"});
  job.join(2, 3);
  job.join(1, 2);
  EXPECT_FALSE(job.last<Start>(1).has_value());
  job.join(3, 4);
  const Start first = job.last<Start>(1).value();
  const Start second = job.last<Start>(2).value();
  const Start third = job.last<Start>(3).value();
  EXPECT_EQ(first.node_rank, 0) << "the coordinator's node, though it came later";
  EXPECT_EQ(second.node_rank, 1);
  EXPECT_EQ(third.node_rank, 2);
  EXPECT_EQ(first.first_rank, 0);
  EXPECT_EQ(second.first_rank, 2);
  EXPECT_EQ(third.first_rank, 5);
  for (const Start& start : {first, second, third}) {
    EXPECT_EQ(start.generation, 1U);
    EXPECT_EQ(start.n_nodes, 3);
    EXPECT_EQ(start.world_size, 9);
    EXPECT_EQ(start.run_id, "night");
  }
}

TEST(NodeRendezvous, WantedRanksAreKept) {
  Job job({.min_nodes = 3, .max_nodes = 3});
  job.join(1, 1, 0);
  job.join(2, 1, 2);
  job.join(3, 1, 1);
  EXPECT_EQ(job.last<Start>(2).value().node_rank, 2);
  EXPECT_EQ(job.last<Start>(3).value().node_rank, 1);
}

TEST(NodeRendezvous, TheJobIsOverWhenAllNodesAre) {
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join(1);
  job.join(2);
  job.take(2, Over{1, ""});
  EXPECT_FALSE(job.last<End>(2).has_value());
  job.take(1, Over{1, ""});
  EXPECT_EQ(job.last<End>(1).value().exit_code, 0);
  EXPECT_EQ(job.last<End>(2).value().report, "");
  EXPECT_TRUE(job.rendezvous().is_over());
}

TEST(NodeRendezvous, TheFirstFailureEndsTheOthersAndIsTheJobs) {
  Job job({.min_nodes = 3, .max_nodes = 3});
  job.join(1);
  job.join(2);
  job.join(3);
  job.take(2, Failed{1, 7, "rank 2 failed"});
  EXPECT_EQ(job.last<Stop>(1).value().why, "rank 2 failed");
  EXPECT_EQ(job.last<Stop>(3).value().generation, 1U);
  EXPECT_FALSE(job.last<Stop>(2).has_value()) << "it ends its own by itself";
  job.take(3, Failed{1, 9, "rank 5 failed"});
  job.take(1, Over{1, ""});
  job.take(3, Over{1, "rank 5 failed, in full"});
  EXPECT_FALSE(job.last<End>(1).has_value());
  job.take(2, Over{1, "rank 2 failed, in full"});
  for (const std::uint64_t node : {1U, 2U, 3U}) {
    const End end = job.last<End>(node).value();
    EXPECT_EQ(end.exit_code, 7);
    EXPECT_EQ(end.report, "rank 2 failed, in full\n  failed after it: rank 5 failed");
  }
}

TEST(NodeRendezvous, AfterAFailureTheSameNodesStartAgain) {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  job.join(1);
  job.join(2);
  job.take(2, Failed{1, 7, "rank 2 failed"});
  job.take(2, Over{1, "in full"});
  EXPECT_FALSE(job.last<Start>(1).value().generation > 1) << "node 1 is not over yet";
  job.take(1, Over{1, ""});
  const Start again = job.last<Start>(1).value();
  EXPECT_EQ(again.generation, 2U);
  EXPECT_EQ(again.restart_count, 1);
  EXPECT_EQ(again.max_restarts, 1);
  job.take(1, Failed{1, 5, "late word of the last generation"});
  job.take(1, Over{1, ""});
  EXPECT_FALSE(job.last<Stop>(2).has_value());
  job.take(1, Failed{2, 5, "rank 0 failed"});
  job.take(1, Over{2, "rank 0 in full"});
  job.take(2, Over{2, ""});
  const End end = job.last<End>(2).value();
  EXPECT_EQ(end.exit_code, 5);
  EXPECT_EQ(end.report, "1 of 1 restarts used:\n  before restart 1, rank 2 failed\nrank 0 in full");
}

TEST(NodeRendezvous, ALostNodeIsReplacedByASpareOne) {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
  job.join(1);
  job.join(2);
  job.join(3);
  EXPECT_THAT(job.last<Notice>(3).value().text, HasSubstr("spare"));
  job.lose(2);
  EXPECT_THAT(job.last<Stop>(1).value().why, AllOf(HasSubstr("host2 (pid 2)"), HasSubstr("cut")));
  job.take(1, Over{1, ""});
  EXPECT_EQ(job.last<Start>(1).value().world_size, 4);
  EXPECT_EQ(job.last<Start>(3).value().node_rank, 1);
}

TEST(NodeRendezvous, ALostNodeIsAskedToComeBackAtOnce) {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1, .join_timeout = seconds(90)});
  job.join(1);
  job.join(2);
  job.lose(2);
  EXPECT_EQ(
      job.last<Notice>(1).value().text,
      "run the same command on host2 to continue the job, which waits 90 s for it (--rdzv-conf "
      "join_timeout=SECONDS)");
  job.take(1, Over{1, ""});
  EXPECT_THAT(job.last<Notice>(1).value().text, HasSubstr("restart 1 of 1"));
  job.join(2);
  EXPECT_EQ(job.last<Start>(2).value().restart_count, 1);
  job.lose(2);
  EXPECT_FALSE(job.last<Notice>(1).has_value()) << "no restart is left";
}

TEST(NodeRendezvous, ALostNodeThatTheJobCanDoWithoutIsNotAskedToComeBack) {
  Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 1});
  job.join(1);
  job.join(2);
  job.lose(2);
  EXPECT_FALSE(job.last<Notice>(1).has_value());
}

TEST(NodeRendezvous, OneLauncherInFrontShowsEachNoticeOnce) {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1, .has_front = true});
  job.join(1);
  job.join(2);
  job.take(2, Failed{.generation = 1, .exit_code = 3, .what = "rank 3 failed"});
  job.take(1, Over{1, ""});
  job.take(2, Over{1, "rank 3 failed, at length"});
  EXPECT_THAT(job.last<Notice>(1).value().text, HasSubstr("restart 1 of 1"));
  EXPECT_FALSE(job.last<Notice>(2).has_value());
}

TEST(NodeRendezvous, WithoutRestartsALostNodeIsTheJobsEnd) {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join(1);
  job.join(2);
  job.lose(2);
  job.take(1, Over{1, ""});
  const End end = job.last<End>(1).value();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.report, HasSubstr("host2 (pid 2) left the job: cut"));
}

TEST(NodeRendezvous, AnElasticJobGoesOnWithFewerAndTakesMoreIn) {
  Job job({.min_nodes = 1, .max_nodes = 3, .max_restarts = 9, .last_call = seconds(30)});
  job.join(1);
  job.join(2);
  EXPECT_FALSE(job.last<Start>(1).has_value()) << "a third one may come";
  job.pass(seconds(29));
  EXPECT_FALSE(job.last<Start>(1).has_value());
  job.pass(seconds(1));
  EXPECT_EQ(job.last<Start>(1).value().n_nodes, 2);
  job.join(3);
  EXPECT_THAT(job.last<Stop>(1).value().why, HasSubstr("host3 (pid 3) has joined"));
  job.take(1, Over{1, ""});
  job.take(2, Over{1, ""});
  const Start with_three = job.last<Start>(3).value();
  EXPECT_EQ(with_three.n_nodes, 3);
  EXPECT_EQ(with_three.restart_count, 0) << "no failure";
  job.lose(2);
  job.take(1, Over{2, ""});
  job.take(3, Over{2, ""});
  job.pass(seconds(30));
  const Start with_two = job.last<Start>(3).value();
  EXPECT_EQ(with_two.n_nodes, 2);
  EXPECT_EQ(with_two.node_rank, 1);
  EXPECT_EQ(with_two.restart_count, 1);
}

TEST(NodeRendezvous, ANewcomerDoesNotUndoWhatIsDone) {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = seconds(1)});
  job.join(1);
  job.pass(seconds(1));
  EXPECT_TRUE(job.last<Start>(1).has_value());
  job.take(1, Over{1, ""});
  EXPECT_TRUE(job.last<End>(1).has_value());
  job.join(2);
  EXPECT_THAT(job.last<Refused>(2).value().why, HasSubstr("the job is over"));
}

TEST(NodeRendezvous, WhoIsMissingIsSaidAndInTheEndTheReason) {
  Job job({.min_nodes = 3, .max_nodes = 3, .join_timeout = seconds(12)});
  job.join(1, 2, 0);
  job.join(2, 2, 2);
  job.pass_until_due();
  EXPECT_EQ(job.last<Notice>(2).value().text,
            "still waiting after 5 s for the nodes of the job: 2 of 3 are here: host1 (pid 1), "
            "host2 (pid "
            "2); missing: node rank 1");
  job.pass_until_due();
  EXPECT_TRUE(job.last<Notice>(1).has_value());
  job.pass_until_due();
  const End end = job.last<End>(2).value();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.report, AllOf(HasSubstr("within 12 s"), HasSubstr("missing: node rank 1")));
}

TEST(NodeRendezvous, WhatDoesNotFitIsRefused) {
  Job job({.min_nodes = 2, .max_nodes = 2, .run_id = "night"});
  const auto refusal = [&](Join join) {
    join.n_workers = 1;
    job.take(9, join);
    const std::optional<Refused> refused = job.last<Refused>(9);
    return refused ? refused->why : "";
  };
  EXPECT_EQ(refusal({.min_nodes = 2, .max_nodes = 3}), "--nnodes is 2 there and 2:3 here");
  EXPECT_EQ(refusal({.min_nodes = 2, .max_nodes = 2, .run_id = "day"}),
            "the job here is \"night\", and --rdzv-id is \"day\"");
  EXPECT_THAT(refusal({.wanted_rank = 2, .min_nodes = 2, .max_nodes = 2}),
              HasSubstr("node rank 2 is not below 2"));
  job.join(1, 1, 0);
  EXPECT_EQ(refusal({.wanted_rank = 0, .min_nodes = 2, .max_nodes = 2}),
            "node rank 0 is taken by host1 (pid 1)");
  EXPECT_THAT(refusal({.min_nodes = 2, .max_nodes = 2}), HasSubstr("have --node-rank"));
}

TEST(NodeRendezvous, OnlySoManySparesAsThereMayBe) {
  Job job({.min_nodes = 1, .max_nodes = 1, .max_spares = 1});
  job.join(1);
  job.join(2);
  EXPECT_TRUE(job.last<Notice>(2).has_value());
  job.join(3);
  EXPECT_THAT(job.last<Refused>(3).value().why, HasSubstr("--spares"));
}

TEST(NodeRendezvous, WithTheCoordinatorsNodeTheJobEnds) {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
  job.join(1);
  job.join(2);
  job.take(1, Leave{143, "ended by SIGTERM"});
  const End end = job.last<End>(2).value();
  EXPECT_EQ(end.exit_code, 143);
  EXPECT_EQ(end.report, "host1 (pid 1) left the job: ended by SIGTERM");
}

TEST(NodeRendezvous, WordsOfStrangersChangeNothing) {
  Job job({.min_nodes = 1, .max_nodes = 1});
  job.take(5, Failed{0, 1, "x"});
  job.take(5, Over{0, ""});
  job.take(5, Leave{1, "x"});
  job.take(5, End{1, "x"});
  job.take(5, Alive{});
  job.lose(5);
  job.join(1);
  EXPECT_TRUE(job.last<Start>(1).has_value());
  job.take(5, Failed{1, 1, "x"});
  job.join(1);
  job.take(1, Over{1, ""});
  EXPECT_EQ(job.last<End>(1).value().exit_code, 0);
}

TEST(NodeRendezvous, LaterRestartsWait) {
  Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 5});
  job.join(1);
  job.take(1, Failed{1, 1, "x"});
  job.take(1, Over{1, "x"});
  EXPECT_EQ(job.last<Start>(1).value().generation, 2U) << "the first one comes at once";
  job.take(1, Failed{2, 1, "x"});
  job.take(1, Over{2, "x"});
  EXPECT_FALSE(job.last<Start>(1).has_value());
  job.pass(milliseconds(99));
  EXPECT_FALSE(job.last<Start>(1).has_value());
  job.pass(milliseconds(1));
  EXPECT_EQ(job.last<Start>(1).value().generation, 3U);
}

// Ranks 0 and 1 are on node 1, ranks 2 and 3 on node 2.
Job job_with_stall_timeout(int max_restarts = 0) {
  Job job(
      {.min_nodes = 2, .max_nodes = 2, .max_restarts = max_restarts, .stall_timeout = seconds(30)});
  job.join(1);
  job.join(2);
  return job;
}

Waits wait_for(std::int32_t rank, std::vector<std::int32_t> late, int waited_ms = 5000) {
  return {1, rank, {{waited_ms, "barrier #1", std::move(late)}}};
}

TEST(NodeRendezvous, ARankThatOthersHaveWaitedForTooLongIsGivenUp) {
  Job job = job_with_stall_timeout();
  job.take(1, wait_for(0, {2}));
  job.take(1, wait_for(1, {2}, 4000));
  job.take(2, wait_for(3, {2}));
  EXPECT_FALSE(job.last<GiveUp>(2).has_value());
  job.pass(milliseconds(24'999));
  EXPECT_FALSE(job.last<GiveUp>(2).has_value());
  job.pass_until_due();
  const GiveUp order = job.last<GiveUp>(2).value();
  EXPECT_EQ(order.generation, 1U);
  EXPECT_EQ(order.rank, 2);
  EXPECT_EQ(order.waited_ms, 30'000);
  EXPECT_EQ(order.waits, "ranks 0-1, 3 in barrier #1 for 30.0 s");
  EXPECT_FALSE(job.last<GiveUp>(1).has_value());
  job.pass(seconds(30));
  EXPECT_FALSE(job.last<GiveUp>(2).has_value()) << "once";
}

TEST(NodeRendezvous, ARankThatComesIsNotGivenUp) {
  Job job = job_with_stall_timeout();
  job.take(1, wait_for(0, {2}));
  job.pass(seconds(24));
  job.take(1, Waits{1, 0, {}});
  job.pass(seconds(60));
  EXPECT_FALSE(job.last<GiveUp>(2).has_value());
  EXPECT_EQ(job.rendezvous().next_due(), NodeRendezvous::Time::max());
}

TEST(NodeRendezvous, ARankThatWaitsForAnotherNodesIsNotGivenUp) {
  Job job = job_with_stall_timeout();
  job.take(1, wait_for(0, {2}));
  job.take(2, wait_for(2, {1}));
  job.pass(seconds(25));
  EXPECT_FALSE(job.last<GiveUp>(2).has_value());
  EXPECT_EQ(job.last<GiveUp>(1).value().rank, 1);
}

TEST(NodeRendezvous, WaitsOfOtherGenerationsAndOthersRanksDoNotCount) {
  Job job = job_with_stall_timeout();
  Waits old = wait_for(0, {2}, 60'000);
  old.generation = 0;
  job.take(1, old);
  job.take(1, wait_for(3, {2}, 60'000));
  job.take(7, wait_for(0, {2}, 60'000));
  job.take(1, wait_for(0, {9}, 60'000));
  job.pass(seconds(60));
  EXPECT_FALSE(job.last<GiveUp>(1).has_value());
  EXPECT_FALSE(job.last<GiveUp>(2).has_value());
}

TEST(NodeRendezvous, TheNextGenerationBeginsWithoutWaits) {
  Job job = job_with_stall_timeout(1);
  job.take(1, wait_for(0, {2}, 60'000));
  EXPECT_TRUE(job.last<GiveUp>(2).has_value());
  job.take(2, Failed{1, 124, "rank 2 was aborted"});
  job.take(1, Over{1, ""});
  job.take(2, Over{1, "all of it"});
  job.pass_until_due();
  EXPECT_EQ(job.last<Start>(2).value().restart_count, 1);
  job.pass(seconds(60));
  EXPECT_FALSE(job.last<GiveUp>(2).has_value());
  Waits again = wait_for(0, {2}, 60'000);
  again.generation = 2;
  job.take(1, again);
  EXPECT_TRUE(job.last<GiveUp>(2).has_value());
}

TEST(NodeRendezvous, WithoutAStallTimeoutNoRankIsGivenUp) {
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join(1);
  job.join(2);
  job.take(1, wait_for(0, {2}, 60'000));
  job.pass(seconds(60));
  EXPECT_FALSE(job.last<GiveUp>(2).has_value());
}

TEST(NodeRendezvous, NodesThatDisagreeAboutTheStallTimeoutAreRefused) {
  Job job({.min_nodes = 2, .max_nodes = 2, .stall_timeout = milliseconds(2500)});
  job.take(3, Join{.host = "host3", .min_nodes = 2, .max_nodes = 2});
  EXPECT_EQ(job.last<Refused>(3).value().why, "--stall-timeout is 2.5 there and not given here");
}

}  // namespace
}  // namespace unisono::launch::nodes
