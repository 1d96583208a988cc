// Ranks in network namespaces that are joined by a virtual cable. The kernel separates these nodes.
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/cabled_namespaces.h"
#include "processes/cabled_test.h"
#include "processes/spawn.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class Namespaces : public CabledTest {
 protected:
  // Runs the rank program in this mode in each namespace and returns the outputs.
  static std::vector<std::string> run_ranks(const std::vector<std::string>& mode,
                                            const Variables& settings = {}) {
    Processes processes;
    start_ranks(processes, UNISONO_RANK_PROGRAM, mode, settings);
    std::vector<std::string> outputs;
    for (const ProcessResult& result : processes.finish()) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      outputs.push_back(result.out);
    }
    return outputs;
  }

  // Returns the number of bytes that the first namespace has received through the second cable.
  static std::int64_t n_bytes_by_second() {
    Processes processes;
    (void)processes.start({"ip",
                           "netns",
                           "exec",
                           CabledNamespaces::name(0),
                           "cat",
                           "/sys/class/net/second/statistics/rx_bytes"});
    return std::stoll(processes.finish()[0].out);
  }
};

const std::string kFirstHello = "(0,2) local (0,1) all_reduce(ones)=2\n";
const std::string kSecondHello = "(1,2) local (0,1) all_reduce(ones)=2\n";

TEST_F(Namespaces, RanksInTwoOfThemReachEachOtherByTcp) {
  EXPECT_THAT(run_ranks({"hello"}), ElementsAre(kFirstHello, kSecondHello));
}

TEST_F(Namespaces, DataGoesThroughTheInterfaceThatIsWanted) {
  // A broadcast from the second rank has as many bytes. Neighbour discovery takes fewer.
  constexpr std::int64_t kData = 4000;
  (void)run_ranks({"broadcasts"});
  EXPECT_LT(n_bytes_by_second(), kData);
  for (const std::string wanted : {"10.213.78.0/24", "second"}) {
    const std::int64_t before = n_bytes_by_second();
    (void)run_ranks({"broadcasts"}, {{"UNISONO_INTERFACE", wanted}});
    EXPECT_GE(n_bytes_by_second() - before, kData) << wanted;
  }
}

TEST_F(Namespaces, AFilteredPortIsSaidToBeOne) {
  const std::string filtered = "10.213.79.1";
  ASSERT_EQ(CabledNamespaces::filter(filtered), "");
  Processes processes;
  (void)processes.start(
      {"ip", "netns", "exec", CabledNamespaces::name(1), UNISONO_RANK_PROGRAM, "hello"},
      {{"MASTER_ADDR", filtered},
       {"MASTER_PORT", "29500"},
       {"RANK", "1"},
       {"WORLD_SIZE", "2"},
       {"UNISONO_TIMEOUT_SECONDS", "2"},
       {"UNISONO_SECRET", "known to both"}});
  const ProcessResult result = processes.finish()[0];
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("MASTER_ADDR=10.213.79.1, MASTER_PORT=29500"),
                    HasSubstr("10.213.79.1:29500: no answer (filtered by a firewall?)")));
}

TEST_F(Namespaces, RanksMeetAtAMulticastGroup) {
  for (const std::string group : {"239.213.77.1", "[ff15::213:77]"}) {
    const std::string method = "tcp://" + group + ":29600?world_size=2";
    EXPECT_THAT(run_ranks({"hello", method}), UnorderedElementsAre(kFirstHello, kSecondHello));
    EXPECT_THAT(run_ranks({"hello", method}, {{"UNISONO_INTERFACE", "second"}}),
                UnorderedElementsAre(kFirstHello, kSecondHello));
  }
}

}  // namespace
}  // namespace unisono::test
