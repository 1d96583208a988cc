// Measures how soon all ranks report the loss of their store, which rank 0 or a separate program
// serves.
#include <signal.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/job.h"
#include "processes/naming_time.h"
#include "processes/spawn.h"

namespace unisono::test {
namespace {

struct Loss {
  std::string name;
  std::vector<std::string> mode;  ///< Mode of the rank program.
  int world_size = 3;             ///< The job starts three ranks.
  std::string busy;               ///< Output of the ranks when they have reached the tested state.
  /// Returns the expected error of each rank about the store at the port.
  std::function<std::string(const std::string& port)> message;
  /// The job does not need the store any more, so the job continues.
  bool goes_on = false;

  friend std::ostream& operator<<(std::ostream& out, const Loss& loss) { return out << loss.name; }
};

constexpr std::size_t kRanks = 3;
constexpr const char* kSecret = "known to all";

void start_ranks(Job& job, const Loss& loss) {
  for (int rank = 0; rank < static_cast<int>(kRanks); ++rank) {
    job.start(rank);
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(job.processes().wait_for_output(rank, loss.busy));
  }
}

void expect_end(Job& job, const std::vector<std::size_t>& ranks, const Loss& loss) {
  for (const std::size_t rank : ranks) {
    job.processes().close_stdin(rank);
  }
  const std::vector<ProcessResult> results = job.processes().finish();
  for (const std::size_t rank : ranks) {
    EXPECT_EQ(results[rank].exit_code, loss.goes_on ? 0 : 1) << results[rank].err;
  }
}

// Kills the process that serves the store: rank 0, or a separate `unisono store serve`.
Seconds kill_rank_0(const Loss& loss) {
  Job job({.world_size = loss.world_size,
           .mode = loss.mode,
           .variables = {{"UNISONO_SECRET", kSecret}, {"UNISONO_STALL_SECONDS", "0.2"}}});
  start_ranks(job, loss);
  const auto start = std::chrono::steady_clock::now();
  job.processes().send_signal(0, SIGKILL);
  const Seconds time = time_to_name(job, {1, 2}, loss.message(job.port().text()), start);
  expect_end(job, {1, 2}, loss);
  return time;
}

std::string port_of(Processes& servers) {
  const std::string begin = "listening on 127.0.0.1:";
  EXPECT_TRUE(servers.wait_for_output(0, begin) && servers.wait_for_output(0, "\n"));
  const std::string& said = servers.output(0);
  return said.substr(begin.size(), said.find('\n') - begin.size());
}

Seconds kill_server(const Loss& loss) {
  Processes servers;
  (void)servers.start({UNISONO_PROGRAM, "store", "serve", "--port", "0"},
                      {{"UNISONO_SECRET", kSecret}});
  const std::string port = port_of(servers);
  Job job({.world_size = loss.world_size,
           .mode = loss.mode,
           .variables = {{"MASTER_PORT", port},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"UNISONO_SECRET", kSecret},
                         {"UNISONO_STALL_SECONDS", "0.2"}}});
  start_ranks(job, loss);
  const auto start = std::chrono::steady_clock::now();
  servers.send_signal(0, SIGKILL);
  const Seconds time = time_to_name(job, {0, 1, 2}, loss.message(port), start);
  expect_end(job, {0, 1, 2}, loss);
  EXPECT_EQ(servers.finish()[0].exit_code, 128 + SIGKILL);
  return time;
}

void expect_in_time(const Loss& loss, Seconds (*kill_once)(const Loss&)) {
  bool is_in_time = false;
  for (int n_tries = 0; n_tries < kTries && !is_in_time && !::testing::Test::HasFailure();
       ++n_tries) {
    const Seconds time = kill_once(loss);
    std::printf("named after %.3f s\n", time.count());
    is_in_time = time < kBetweenNodes;
  }
  EXPECT_TRUE(is_in_time);
}

std::string name_of(const ::testing::TestParamInfo<Loss>& info) {
  return info.param.name;
}

// Three of four ranks have joined.
Loss during_rendezvous(const std::string& server) {
  return {.name = "Meet",
          .mode = {"hello"},
          .world_size = 4,
          .busy = "has waited",
          .message = [server](const std::string& port) {
            return "has lost the store at MASTER_ADDR=127.0.0.1, MASTER_PORT=" + port + ": " +
                   server + ", which serves it, has ended";
          }};
}

Loss during_a_wait() {
  return {
      .name = "WaitInTheStore",
      .mode = {"wait_in_store"},
      .busy = "waiting\n",
      .message = [](const std::string& port) { return "rank_program: store 127.0.0.1:" + port; }};
}

std::string warning(const std::string& port) {
  return "the job's store at 127.0.0.1:" + port + " is gone";
}

// The host of the store is also a rank: see naming_time_test.cpp.
class KilledRankWithTheStore : public ::testing::TestWithParam<Loss> {};

TEST_P(KilledRankWithTheStore, IsNamedWhileOthers) {
  expect_in_time(GetParam(), kill_rank_0);
}

INSTANTIATE_TEST_SUITE_P(Ranks,
                         KilledRankWithTheStore,
                         ::testing::Values(during_rendezvous("rank 0"), during_a_wait()),
                         name_of);

class KilledStore : public ::testing::TestWithParam<Loss> {};

TEST_P(KilledStore, IsNamedWhileRanks) {
  expect_in_time(GetParam(), kill_server);
}

INSTANTIATE_TEST_SUITE_P(Ranks,
                         KilledStore,
                         ::testing::Values(during_rendezvous("the launcher"),
                                           during_a_wait(),
                                           Loss{.name = "Train",
                                                .mode = {"stream", "private"},
                                                .busy = "streaming\n",
                                                .message = warning,
                                                .goes_on = true},
                                           Loss{.name = "WaitForALateOne",
                                                .mode = {"meet", "bbw"},
                                                .busy = "ready\n",
                                                .message = warning,
                                                .goes_on = true}),
                         name_of);

}  // namespace
}  // namespace unisono::test
