// Jobs of several nodes with a launcher each. All nodes are on this machine here.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/ports.h"
#include "unisono/net/socket.h"

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::read_file;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Words = std::vector<std::string>;

// The launchers of a job, which has a separate port.
class Nodes {
 public:
  [[nodiscard]] std::string port() const { return std::to_string(reserved_.port()); }

  // Returns --nnodes N, --node-rank R and the rendezvous address.
  [[nodiscard]] Words place(int n_nodes, int node_rank) const {
    return {"--nnodes",
            std::to_string(n_nodes),
            "--node_rank",
            std::to_string(node_rank),
            "--master_addr",
            "127.0.0.1",
            "--master_port",
            port()};
  }

  // Like place(), but the job assigns the node ranks.
  [[nodiscard]] Words endpoint(const std::string& n_nodes) const {
    return {"--nnodes", n_nodes, "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:" + port()};
  }

  // Starts a launcher with `place`, `options` and a shell `script`.
  LaunchRun& start(const Words& place,
                   const Words& options,
                   const std::string& script,
                   const Words& environment = {}) {
    Words words{"run"};
    words.insert(words.end(), place.begin(), place.end());
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"sh", "-c", script});
    return runs_.emplace_back(RunSetup{.arguments = words, .environment = environment});
  }

  [[nodiscard]] std::vector<RunResult> finish() {
    std::vector<RunResult> results;
    for (LaunchRun& run : runs_) {
      results.push_back(run.finish());
      EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
    }
    return results;
  }

 private:
  net::PortReservation reserved_{net::resolve("127.0.0.1", 0).front()};
  std::deque<LaunchRun> runs_;
};

constexpr const char* kHang = "echo ready; exec " UNISONO_PROBE " wait";

// Starts a job of two nodes with one rank each. The ranks are ready and do not end by themselves.
std::pair<LaunchRun&, LaunchRun&> start_two_that_hang(Nodes& nodes, const Words& options = {}) {
  LaunchRun& first = nodes.start(nodes.place(2, 0), options, kHang);
  LaunchRun& second = nodes.start(nodes.place(2, 1), options, kHang);
  first.wait_for_output("ready");
  second.wait_for_output("ready");
  return {first, second};
}

Words sorted_lines(const std::vector<RunResult>& results) {
  Words lines;
  for (const RunResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Words own = split_lines(result.out);
    lines.insert(lines.end(), own.begin(), own.end());
  }
  std::ranges::sort(lines);
  return lines;
}

TEST(LaunchNodes, RanksAreNumberedThroughAllNodes) {
  Nodes nodes;
  const std::string script =
      "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of "
      "$GROUP_WORLD_SIZE, $ROLE_RANK of $ROLE_WORLD_SIZE, $TORCHELASTIC_RUN_ID at $MASTER_ADDR";
  nodes.start(nodes.place(2, 1), {"-n", "1", "--rdzv_id=night"}, script);
  nodes.start(nodes.place(2, 0), {"-n", "2", "--rdzv_id=night"}, script);
  EXPECT_THAT(sorted_lines(nodes.finish()),
              ElementsAre("0 of 3, 0 of 2, node 0 of 2, 0 of 3, night at 127.0.0.1",
                          "1 of 3, 1 of 2, node 0 of 2, 1 of 3, night at 127.0.0.1",
                          "2 of 3, 0 of 1, node 1 of 2, 2 of 3, night at 127.0.0.1"));
}

TEST(LaunchNodes, RanksMeetAcrossNodes) {
  for (const bool are_ranks_given : {true, false}) {
    Nodes nodes;
    for (const int node : {1, 0}) {
      nodes.start(are_ranks_given ? nodes.place(2, node) : nodes.endpoint("2"),
                  {"-n", "2"},
                  UNISONO_RANK_PROGRAM);
    }
    const std::vector<RunResult> results = nodes.finish();
    for (const RunResult& result : results) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(count(result.out, "all_reduce(ones)=4"), 2) << result.out;
    }
  }
}

TEST(LaunchNodes, ManyRanksOnTwoNodes) {
  Nodes nodes;
  for (const int node : {0, 1}) {
    nodes.start(nodes.place(2, node), {"-n", "8"}, UNISONO_RANK_PROGRAM);
  }
  for (const RunResult& result : nodes.finish()) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(count(result.out, "all_reduce(ones)=16"), 8) << result.out;
  }
}

TEST(LaunchNodes, AFailedRankEndsAllNodesWhichSayWhy) {
  Nodes nodes;
  nodes.start(nodes.place(2, 0), {"-n", "2"}, kHang);
  nodes.start(nodes.place(2, 1),
              {"-n", "2"},
              std::string("[ $RANK = 3 ] && { echo last words; exit 7; }; ") + kHang);
  for (const RunResult& result : nodes.finish()) {
    EXPECT_EQ(result.exit_code, 7) << result.err;
    EXPECT_THAT(result.err,
                AllOf(ContainsRegex("rank 3 \\(.+, pid [0-9]+\\) failed after .* s: exit code 7\n"),
                      HasSubstr("| last words\n")));
  }
}

TEST(LaunchNodes, ThePortInUseIsNamedWithItsHolder) {
  const Fd listener = net::listen_tcp(net::resolve("127.0.0.1", 0).front());
  const std::uint16_t port = net::local_address(listener.get()).port();
  const RunResult result = run_to_end(
      {.arguments = probe({"--nnodes=2", "--node_rank=0", "--master_port", std::to_string(port)},
                          {"args"})});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr(std::to_string(port)),
                    HasSubstr("process " + std::to_string(::getpid())),
                    HasSubstr("--master-port")));
}

// Another test may use the default port at the same time.
TEST(LaunchNodes, WithoutAPortTheyMeetAtTheUsualOne) {
  const RunResult result =
      run_to_end({.arguments = probe(
                      {"--nnodes=2", "--node_rank=1", "--rdzv_conf=join_timeout=0.3"}, {"args"})});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(" at 127.0.0.1:29500"));
}

TEST(LaunchNodes, ANodeThatNeverComesIsNamed) {
  Nodes nodes;
  nodes.start(nodes.place(3, 0), {"--rdzv_conf=join_timeout=1"}, "true");
  nodes.start(nodes.place(3, 2), {"--rdzv_conf=join_timeout=20"}, "true");
  for (const RunResult& result : nodes.finish()) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("missing: node rank 1"));
  }
}

TEST(LaunchNodes, AKilledLauncherEndsTheJobOfAll) {
  Nodes nodes;
  const auto [first, second] = start_two_that_hang(nodes);
  ASSERT_EQ(::kill(second.pid(), SIGKILL), 0);
  const std::vector<RunResult> results = nodes.finish();
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].err,
              ContainsRegex("\\(pid [0-9]+\\) left the job: the connection was closed"));
}

TEST(LaunchNodes, WithRestartsTheJobSaysThatTheLostNodeMayComeBack) {
  Nodes nodes;
  const auto [first, second] =
      start_two_that_hang(nodes, {"--max_restarts=1", "--rdzv_conf=join_timeout=2"});
  ASSERT_EQ(::kill(second.pid(), SIGKILL), 0);
  const RunResult result = nodes.finish()[0];
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(
      result.err,
      ContainsRegex("run the same command on [^ ]+ to continue the job, which waits 2 s for it "
                    "\\(--rdzv-conf join_timeout=SECONDS\\)\n(.*\n)*.*restart 1 of 1\n"));
}

TEST(LaunchNodes, WhereTheCoordinatorIsKilledTheOthersEnd) {
  Nodes nodes;
  const auto [first, second] = start_two_that_hang(nodes);
  ASSERT_EQ(::kill(first.pid(), SIGKILL), 0);
  const std::vector<RunResult> results = nodes.finish();
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_THAT(
      results[1].err,
      HasSubstr("lost the connection to the launcher of node 0 at 127.0.0.1:" + nodes.port()));
}

TEST(LaunchNodes, ASignalToOneEndsAll) {
  for (const bool is_coordinator : {true, false}) {
    Nodes nodes;
    const auto [first, second] = start_two_that_hang(nodes);
    ASSERT_EQ(::kill(is_coordinator ? first.pid() : second.pid(), SIGTERM), 0);
    for (const RunResult& result : nodes.finish()) {
      EXPECT_EQ(result.exit_code, 143) << result.err;
      EXPECT_THAT(result.err, HasSubstr("ended by SIGTERM"));
    }
  }
}

TEST(LaunchNodes, AStoppedLauncherCountsAsLost) {
  Nodes nodes;
  const auto [first, second] = start_two_that_hang(nodes, {"--rdzv_conf=keep_alive_interval=0.2"});
  ASSERT_EQ(::kill(second.pid(), SIGSTOP), 0);
  const RunResult result = first.finish();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("left the job: nothing was received from it for"));
  ASSERT_EQ(::kill(second.pid(), SIGCONT), 0);
  EXPECT_THAT(second.finish().err, HasSubstr("lost the connection"));
  EXPECT_THAT(second.wait_until_all_gone(), IsEmpty());
}

TEST(LaunchNodes, AfterAFailureAllNodesStartAgain) {
  Nodes nodes;
  const std::string script =
      "[ $RANK$TORCHELASTIC_RESTART_COUNT = 20 ] && exit 3; "
      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 100; echo $RANK of $WORLD_SIZE; "
      "exec " UNISONO_RANK_PROGRAM;
  nodes.start(nodes.place(2, 0), {"-n", "2", "--max_restarts=1"}, script);
  nodes.start(nodes.place(2, 1), {"-n", "1", "--max_restarts=1"}, script);
  const std::vector<RunResult> results = nodes.finish();
  for (const RunResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("exit code 3\n"),
                      HasSubstr("restart 1 of 1\n"),
                      HasSubstr("1 of 1 restarts used:\n")));
  }
  EXPECT_EQ(count(results[0].out + results[1].out, "all_reduce(ones)=3"), 3);
}

TEST(LaunchNodes, AnElasticJobTakesNodesInAndLosesThem) {
  Nodes nodes;
  const Words options{"-n", "1", "--max_restarts=5", "--rdzv_conf=last_call_timeout=0.3"};
  const std::string script =
      std::string("echo $RANK of $WORLD_SIZE; exec ") + UNISONO_PROBE + " wait";
  LaunchRun& first = nodes.start(nodes.endpoint("1:3"), options, script);
  first.wait_for_output("0 of 1");
  LaunchRun& second = nodes.start(nodes.endpoint("1:3"), options, script);
  first.wait_for_output("0 of 2");
  second.wait_for_output("1 of 2");
  LaunchRun& third = nodes.start(nodes.endpoint("1:3"), options, script);
  first.wait_for_output("0 of 3");
  third.wait_for_output("2 of 3");
  ASSERT_EQ(::kill(second.pid(), SIGKILL), 0);
  third.wait_for_output("1 of 2");
  first.wait_for_output("0 of 2", 2);
  ASSERT_EQ(::kill(first.pid(), SIGTERM), 0);
  const std::vector<RunResult> results = nodes.finish();
  EXPECT_EQ(results[0].exit_code, 143);
  EXPECT_EQ(results[2].exit_code, 143);
  EXPECT_THAT(results[2].err, HasSubstr("restart 1 of 5"));
}

TEST(LaunchNodes, ASpareNodeTakesThePlaceOfALostOne) {
  Nodes nodes;
  const Words options{"-n", "1", "--max_restarts=2", "--rdzv_conf=is_host=false"};
  const std::string script =
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec " UNISONO_RANK_PROGRAM "; " + std::string(kHang);
  LaunchRun& first =
      nodes.start(nodes.endpoint("2"), {"--max_restarts=2", "--rdzv_conf=is_host=true"}, script);
  LaunchRun& second = nodes.start(nodes.endpoint("2"), options, script);
  first.wait_for_output("ready");
  second.wait_for_output("ready");
  LaunchRun& third = nodes.start(nodes.endpoint("2"), options, script);
  third.wait_for_error("waiting as a spare node");
  ASSERT_EQ(::kill(second.pid(), SIGKILL), 0);
  const std::vector<RunResult> results = nodes.finish();
  for (const std::size_t node : {0U, 2U}) {
    EXPECT_EQ(results[node].exit_code, 0) << results[node].err;
    EXPECT_EQ(count(results[node].out, "all_reduce(ones)=2"), 1) << results[node].out;
  }
}

TEST(LaunchNodes, AnotherSecretIsTurnedAway) {
  Nodes nodes;
  nodes.start(nodes.place(2, 0), {"--rdzv_conf=join_timeout=2"}, "true", {"UNISONO_SECRET=one"});
  nodes.start(nodes.place(2, 1), {}, "true", {"UNISONO_SECRET=other"});
  const std::vector<RunResult> results = nodes.finish();
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_THAT(results[1].err, AllOf(HasSubstr("can't join the job"), HasSubstr("secret")));
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(
      results[0].err,
      AllOf(HasSubstr("rejected a connection from 127.0.0.1"), HasSubstr("missing: node rank 1")));
}

TEST(LaunchNodes, WhoDoesNotFitIsToldWhy) {
  Nodes nodes;
  LaunchRun& first = nodes.start(nodes.place(2, 0), {"--rdzv_id=night"}, "true");
  const RunResult day = nodes.start(nodes.place(2, 1), {"--rdzv_id=day"}, "true").finish();
  EXPECT_EQ(day.exit_code, 1);
  EXPECT_THAT(day.err, HasSubstr("the job here is \"night\", and --rdzv-id is \"day\""));
  const RunResult three = nodes.start(nodes.place(3, 1), {}, "true").finish();
  EXPECT_THAT(three.err, HasSubstr("--nnodes is 2 there and 3 here"));
  nodes.start(nodes.place(2, 1), {}, "true");
  EXPECT_EQ(first.finish().exit_code, 0);
}

TEST(LaunchNodes, StrangersAtThePortDoNoHarm) {
  Nodes nodes;
  LaunchRun& first = nodes.start(nodes.place(2, 0), {}, "echo done");
  const net::Address address =
      net::Address::parse("127.0.0.1", static_cast<std::uint16_t>(std::stoi(nodes.port()))).value();
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(net::connect_tcp(address, Deadline::after(std::chrono::seconds(20))));
    const std::string junk = "GET / HTTP/1.1\r\n\r\n";
    if (i % 2 == 0) {
      (void)net::write_some(silent.back().get(), std::as_bytes(std::span(junk)));
    }
  }
  nodes.start(nodes.place(2, 1), {}, "echo done");
  EXPECT_EQ(first.finish().exit_code, 0);
}

TEST(LaunchNodes, WhatSaysNoHelloIsNoLauncher) {
  const Fd listener = net::listen_tcp(net::resolve("127.0.0.1", 0).front());
  const std::uint16_t port = net::local_address(listener.get()).port();
  const std::jthread server([&] {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    if (net::wait_for(listener.get(), POLLIN, deadline)) {
      const net::Accepted accepted = net::accept_connection(listener.get());
      const std::string junk(100, 'x');
      (void)net::write_some(accepted.fd.get(), std::as_bytes(std::span(junk)));
      net::discard_until_closed(accepted.fd.get(), deadline);
    }
  });
  const RunResult result = run_to_end(
      {.arguments = probe({"--nnodes=2", "--node_rank=1", "--master_port", std::to_string(port)},
                          {"args"})});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("can't join the job at 127.0.0.1:" + std::to_string(port)),
                    HasSubstr("there listens process " + std::to_string(::getpid()))));
}

// The port belongs to the ranks' store. The server of the store has the same secret.
TEST(LaunchNodes, AStoreIsNoLauncher) {
  Nodes nodes;
  const Words secret{"UNISONO_SECRET=one"};
  LaunchRun& job = nodes.start({"--master_port", nodes.port()},
                               {},
                               std::string("echo ready; exec ") + UNISONO_PROBE " wait",
                               secret);
  job.wait_for_output("ready");
  const RunResult result = nodes.start(nodes.place(2, 1), {}, "true", secret).finish();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("it is not a launcher: its connections are for \"store\""));
  ASSERT_EQ(::kill(job.pid(), SIGTERM), 0);
  EXPECT_EQ(job.finish().exit_code, 143);
}

TEST(LaunchNodes, LogFilesAndPrefixesHaveTheRanksOfTheJob) {
  const TemporaryFolder folder;
  Nodes nodes;
  for (const int node : {0, 1}) {
    nodes.start(nodes.place(2, node),
                {"-n", "2", "--prefix", "--log-dir", folder.path()},
                "echo words of $RANK");
  }
  const std::vector<RunResult> results = nodes.finish();
  EXPECT_THAT(results[1].out,
              AllOf(HasSubstr("[rank 2] words of 2\n"), HasSubstr("[rank 3] words of 3\n")));
  for (const std::string rank : {"0", "1", "2", "3"}) {
    EXPECT_EQ(read_file(folder.path() + "/rank-" + rank + ".out"), "words of " + rank + "\n");
  }
}

TEST(LaunchNodes, AMissingProgramFailsBeforeTheNodesMeet) {
  const RunResult result =
      run_to_end({.arguments = {"run", "--nnodes=2", "--node_rank=1", "/no/such/program"}});
  EXPECT_EQ(result.exit_code, 127);
}

}  // namespace
}  // namespace unisono::launch_test
