// Ranks find each other by multicast on nodes that share a network and have another interface.
#include <csignal>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/bridged_namespaces.h"
#include "processes/network_namespaces.h"
#include "processes/spawn.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;

struct Group {
  std::string name;
  std::string address;

  friend std::ostream& operator<<(std::ostream& out, const Group& group) {
    return out << group.name;
  }
};

class MulticastOfNodes : public NetworkTest<BridgedNamespaces>,
                         public ::testing::WithParamInterface<Group> {
 protected:
  [[nodiscard]] static std::string method(const std::string& options) {
    return "tcp://" + GetParam().address + ":29600?" + options;
  }

  // Starts a process that meets the others and prints its rank and the sum of the ones of all
  // ranks.
  static std::size_t start(Processes& processes,
                           int node,
                           const std::string& options,
                           const Variables& settings = {{"UNISONO_SECRET", "known to all"}}) {
    return processes.start({"ip",
                            "netns",
                            "exec",
                            BridgedNamespaces::name(node),
                            UNISONO_RANK_PROGRAM,
                            "hello",
                            method(options)},
                           settings);
  }

  // Expects that the processes are the ranks of one job.
  static void expect_one_job(const std::vector<ProcessResult>& results) {
    const std::string world_size = std::to_string(results.size());
    std::vector<Matcher<std::string>> ranks;
    std::vector<std::string> outputs;
    for (const ProcessResult& result : results) {
      ranks.emplace_back(MatchesRegex("\\(" + std::to_string(ranks.size()) + "," + world_size +
                                      "\\) local \\([0-9],[0-9]\\) " +
                                      "all_reduce\\(ones\\)=" + world_size + "\n"));
      outputs.push_back(result.out);
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    EXPECT_THAT(outputs, UnorderedElementsAreArray(ranks));
  }
};

// Any process may become rank 0. Two processes share a node and also receive each other's packets
// through the interface without a peer.
TEST_P(MulticastOfNodes, RanksMeetByTheInterfaceThatAllShare) {
  for (int job = 0; job < 5; ++job) {
    Processes processes;
    for (const int node : {0, 0, 1, 2}) {
      start(processes, node, "world_size=4");
    }
    expect_one_job(processes.finish());
  }
}

TEST_P(MulticastOfNodes, JobsOfDifferentNamesDoNotSeeEachOther) {
  Processes processes;
  for (int node = 0; node < BridgedNamespaces::kNodes; ++node) {
    for (const std::string name : {"anna", "bert"}) {
      start(processes, node, "world_size=3&group_name=" + name);
    }
  }
  std::vector<ProcessResult> anna;
  std::vector<ProcessResult> bert;
  for (const ProcessResult& result : processes.finish()) {
    (anna.size() == bert.size() ? anna : bert).push_back(result);
  }
  expect_one_job(anna);
  expect_one_job(bert);
}

// The world size of the stranger would be an error if its packets were accepted.
TEST_P(MulticastOfNodes, AStrangerWithAnotherSecretDoesNoHarm) {
  Processes stranger;
  start(stranger,
        1,
        "world_size=2",
        {{"UNISONO_SECRET", "a guess"}, {"UNISONO_STALL_SECONDS", "0.3"}});
  ASSERT_TRUE(stranger.wait_for_output(0, "1 of 2 processes are here: pid "));
  Processes job;
  for (int node = 0; node < BridgedNamespaces::kNodes; ++node) {
    start(job, node, "world_size=3");
  }
  expect_one_job(job.finish());
  stranger.send_signal(0, SIGTERM);
  const ProcessResult result = stranger.finish()[0];
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
}

// A machine with only a loopback interface, where IPv6 has no route to multicast groups.
class MachineAlone : public NetworkNamespaces {
 public:
  MachineAlone() : NetworkNamespaces(1) {}
};

class MulticastAlone : public NetworkTest<MachineAlone> {
 protected:
  // Returns the error of a process that may wait this long for another process.
  static std::string message_after(const std::string& timeout_seconds) {
    Processes processes;
    (void)processes.start({"ip",
                           "netns",
                           "exec",
                           MachineAlone::name(0),
                           UNISONO_RANK_PROGRAM,
                           "hello",
                           "tcp://[ff15::213:77]:29600?world_size=2"},
                          {{"UNISONO_TIMEOUT_SECONDS", timeout_seconds}});
    const ProcessResult result = processes.finish()[0];
    EXPECT_EQ(result.exit_code, 1) << result.err;
    return result.err;
  }
};

const std::string kImpossible =
    "multicast to [ff15::213:77]:29600 is impossible here (lo: Network is unreachable); give the "
    "group's interface a route or meet by tcp://HOST:PORT";

TEST_F(MulticastAlone, WhoCanSendNothingSaysWhyWhenItsTimeIsUp) {
  EXPECT_THAT(message_after("0.5"),
              AllOf(HasSubstr("1 of 2 processes are here: pid "), HasSubstr("; " + kImpossible)));
}

TEST_F(MulticastAlone, WhoCanSendNothingGivesUpAfterAMoment) {
  EXPECT_THAT(message_after("30"),
              AllOf(HasSubstr(kImpossible), Not(HasSubstr("processes are here"))));
}

INSTANTIATE_TEST_SUITE_P(Groups,
                         MulticastOfNodes,
                         ::testing::Values(Group{"IPv4", "239.213.77.1"},
                                           Group{"IPv6", "[ff15::213:77]"}),
                         [](const auto& case_info) { return case_info.param.name; });

}  // namespace
}  // namespace unisono::test
