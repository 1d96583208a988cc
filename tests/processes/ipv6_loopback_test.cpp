// Ranks of a machine with only an IPv6 address on its loopback interface.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/network_namespaces.h"
#include "processes/spawn.h"
#include "support/temporary_folder.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class Ipv6Machine : public NetworkNamespaces {
 public:
  Ipv6Machine() : NetworkNamespaces(1) {
    make("-n " + name(0) + " address del 127.0.0.1/8 dev lo");
  }
};

class Ipv6Loopback : public NetworkTest<Ipv6Machine> {
 protected:
  static void start(Processes& processes,
                    const std::vector<std::string>& command,
                    const Variables& variables = {}) {
    std::vector<std::string> there{"ip", "netns", "exec", Ipv6Machine::name(0)};
    there.insert(there.end(), command.begin(), command.end());
    (void)processes.start(there, variables);
  }

  // Returns the output of each process after a successful end.
  static std::vector<std::string> outputs_of(Processes& processes) {
    std::vector<std::string> outputs;
    for (const ProcessResult& result : processes.finish()) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      outputs.push_back(result.out);
    }
    return outputs;
  }
};

const std::string kFirstHello = "(0,2) local (0,2) all_reduce(ones)=2\n";
const std::string kSecondHello = "(1,2) local (1,2) all_reduce(ones)=2\n";

TEST_F(Ipv6Loopback, TheLauncherServesTheStoreThere) {
  Processes processes;
  start(processes,
        {UNISONO_PROGRAM,
         "run",
         "-n",
         "2",
         "sh",
         "-c",
         "echo at $MASTER_ADDR; exec " UNISONO_RANK_PROGRAM " hello"});
  EXPECT_THAT(outputs_of(processes)[0],
              AllOf(HasSubstr("at ::1\n"), HasSubstr(kFirstHello), HasSubstr(kSecondHello)));
}

TEST_F(Ipv6Loopback, RanksOfAFileMeetThere) {
  const TemporaryFolder folder;
  Processes processes;
  for (int i = 0; i < 2; ++i) {
    start(processes,
          {UNISONO_RANK_PROGRAM, "hello", "file://" + folder.path() + "/job?world_size=2"});
  }
  EXPECT_THAT(outputs_of(processes), UnorderedElementsAre(kFirstHello, kSecondHello));
}

TEST_F(Ipv6Loopback, RanksOfMpirunOnOneNodeMeetThere) {
  Processes processes;
  for (const std::string rank : {"0", "1"}) {
    start(processes,
          {UNISONO_RANK_PROGRAM, "hello"},
          {{"OMPI_COMM_WORLD_RANK", rank},
           {"OMPI_COMM_WORLD_SIZE", "2"},
           {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
           {"PMIX_NAMESPACE", "393740289"}});
  }
  EXPECT_THAT(outputs_of(processes), UnorderedElementsAre(kFirstHello, kSecondHello));
}

// Ranks of simulated nodes exchange data through sockets.
TEST_F(Ipv6Loopback, RanksOfSeveralNodesExchangeTheirDataThere) {
  for (const std::string n_nodes : {"1", "2"}) {
    Processes processes;
    start(processes,
          {UNISONO_PROGRAM,
           "bench",
           "all_reduce",
           "-n",
           "2",
           "--nodes",
           n_nodes,
           "--check",
           "--sizes",
           "64K",
           "--seconds",
           "0.01"});
    EXPECT_THAT(outputs_of(processes)[0], HasSubstr("2 ranks on " + n_nodes + " node"));
  }
}

}  // namespace
}  // namespace unisono::test
