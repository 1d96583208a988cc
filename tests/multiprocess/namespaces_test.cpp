// Ranks in network namespaces, joined by a virtual cable: nodes that the kernel keeps apart.
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multiprocess/cabled_namespaces.h"
#include "multiprocess/spawn.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class Namespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "network namespaces take root";
    }
    namespaces_.emplace();
    if (!namespaces_->problem().empty()) {
      GTEST_SKIP() << "no network namespaces here: " << namespaces_->problem();
    }
  }

  // A rank program of this mode in each of them. What they wrote.
  static std::vector<std::string> run_ranks(const std::vector<std::string>& mode,
                                            const Variables& settings = {}) {
    Processes processes;
    for (int rank = 0; rank < 2; ++rank) {
      Variables variables{{"MASTER_ADDR", CabledNamespaces::address(0)},
                          {"MASTER_PORT", "29500"},
                          {"RANK", std::to_string(rank)},
                          {"WORLD_SIZE", "2"},
                          {"UNISONO_SECRET", "known to both"}};
      variables.insert(settings.begin(), settings.end());
      std::vector<std::string> command{
          "ip", "netns", "exec", CabledNamespaces::name(rank), UNISONO_RANK_PROGRAM};
      command.insert(command.end(), mode.begin(), mode.end());
      (void)processes.start(command, variables);
    }
    std::vector<std::string> outputs;
    for (const ProcessResult& result : processes.finish()) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      outputs.push_back(result.out);
    }
    return outputs;
  }

  // What the first of them has received through the second cable.
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

  std::optional<CabledNamespaces> namespaces_;
};

const std::string kFirstHello = "(0,2) local (0,1) all_reduce(ones)=2\n";
const std::string kSecondHello = "(1,2) local (0,1) all_reduce(ones)=2\n";

TEST_F(Namespaces, RanksInTwoOfThemReachEachOtherByTcp) {
  EXPECT_THAT(run_ranks({"hello"}), ElementsAre(kFirstHello, kSecondHello));
}

TEST_F(Namespaces, DataGoesThroughTheInterfaceThatIsWanted) {
  // A broadcast of the second rank's has as many; discovering neighbours takes less.
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
       {"UNISONO_TIMEOUT_SECONDS", "1"},
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
