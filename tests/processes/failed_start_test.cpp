// A rank that has joined the job but can't connect to the other ranks of its node, which may
// already have started an operation.
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/store/tcp_store.h"

#include "processes/job.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{30};

pid_t pid_of_an_ended_process() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return child;
}

// Joins under the name of a process that has ended, while its port still accepts connections.
void join_as(int rank, const Job& job, const std::string& node, int data_listener) {
  const Deadline deadline = Deadline::after(kPatience);
  store::TcpStore store(
      {.host = "127.0.0.1", .port = job.port().number(), .secret = "known to all"}, deadline);
  (void)rendezvous::exchange_roster(store,
                                    {.rank = rank,
                                     .world_size = 3,
                                     .host = "elsewhere",
                                     .pid = pid_of_an_ended_process(),
                                     .node = node,
                                     .address = "127.0.0.1",
                                     .port = net::local_address(data_listener).port(),
                                     .endpoint = "nobody-listens-here"},
                                    deadline);
}

void expect_that_all_name_rank_1(const std::vector<std::string>& nodes) {
  Job job({.world_size = 3, .mode = {"meet", "bbb"}, .nodes = nodes});
  job.start(0);
  job.start(2);
  const Fd data_listener = net::listen_tcp(net::Address::loopback(0));
  join_as(1, job, nodes[1], data_listener.get());
  const std::vector<ProcessResult> results = job.processes().finish(std::chrono::seconds(10));
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1 (pid "), HasSubstr(" on elsewhere) is gone")));
  }
}

TEST(FailedStart, IsToldOnItsNode) {
  expect_that_all_name_rank_1({"a", "a", "a"});
}

TEST(FailedStart, IsToldToOtherNodes) {
  expect_that_all_name_rank_1({"a", "b", "b"});
}

TEST(FailedStart, OfTheRankThatServesTheStoreIsToldToOtherNodes) {
  expect_that_all_name_rank_1({"b", "b", "a"});
}

}  // namespace
}  // namespace unisono::test
