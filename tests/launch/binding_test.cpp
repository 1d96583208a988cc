// Ranks that are bound to cores: the binding that the ranks observe, and the reports about the
// binding.
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/process.h"
#include "unisono/net/address.h"
#include "unisono/net/ports.h"

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::Not;

using Options = std::vector<std::string>;

// A rank's report about its own binding.
struct Place {
  std::vector<int> cores;
  int n_threads = 0;
};

// Returns the bindings by rank, from lines such as "[alpha:1] rank 1 cores 0,1 threads 2".
std::map<int, Place> places(const std::string& out) {
  const std::regex line("rank ([0-9]+) cores ([0-9,]+) threads ([0-9]+)");
  std::map<int, Place> result;
  for (std::sregex_iterator match(out.begin(), out.end(), line), end; match != end; ++match) {
    Place& place = result[std::stoi((*match)[1])];
    std::istringstream numbers((*match)[2]);
    for (std::string number; std::getline(numbers, number, ',');) {
      place.cores.push_back(std::stoi(number));
    }
    place.n_threads = std::stoi((*match)[3]);
  }
  return result;
}

std::string core_report(int rank, const std::vector<int>& cores) {
  return "rank " + std::to_string(rank) + " on [^ ]+: core" + (cores.size() == 1 ? "" : "s") + " " +
         std::to_string(cores.front()) + "[-,0-9]*, NUMA node [0-9]+, OMP_NUM_THREADS=";
}

bool has_line(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

// Runs `unisono` under taskset on the first core that this test may use.
RunSetup on_one_core(const Options& options) {
  std::vector<std::string> arguments{"-c", std::to_string(cores_of(0).front()), UNISONO_PROGRAM};
  for (const std::string& word : probe(options, {"cores"})) {
    arguments.push_back(word);
  }
  return {
      .arguments = arguments, .environment = {"OMP_NUM_THREADS"}, .program = "/usr/bin/taskset"};
}

RunSetup cores_probe(const Options& options) {
  return {.arguments = probe(options, {"cores"}), .environment = {"OMP_NUM_THREADS"}};
}

TEST(Binding, EachRankHasCoresOfItsOwnAndTheReportSaysWhich) {
  const std::vector<int> all = cores_of(0);
  if (all.size() < 2) {
    GTEST_SKIP() << "takes two cores";
  }
  const RunResult result =
      run_to_end(cores_probe({"-n", "2", "--bind-to", "core", "--report-bindings"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::map<int, Place> ranks = places(result.out);
  ASSERT_EQ(ranks.size(), 2U) << result.out;
  std::set<int> given;
  std::size_t n_threads = 0;
  for (const auto& [rank, place] : ranks) {
    for (const int core : place.cores) {
      EXPECT_TRUE(given.insert(core).second) << result.out;
    }
    EXPECT_GE(place.n_threads, 1);
    n_threads += static_cast<std::size_t>(place.n_threads);
    EXPECT_TRUE(has_line(result.err,
                         core_report(rank, place.cores) + std::to_string(place.n_threads) +
                             " \\(set by the launcher\\)"))
        << result.err;
  }
  EXPECT_EQ(given, std::set<int>(all.begin(), all.end()));
  EXPECT_LE(n_threads, all.size());
}

// Runs `unisono` in a separate network namespace, where the marks of other jobs are invisible.
// `before` may start a second run there, which runs while the ranks of the first run wait.
RunSetup in_own_network(const Options& options, const std::string& before = "") {
  std::vector<std::string> arguments{
      "--net", "sh", "-c", "ip link set lo up && " + before + "exec \"$@\"", "sh", UNISONO_PROGRAM};
  for (const std::string& word : probe(options, {"cores"})) {
    arguments.push_back(word);
  }
  return {
      .arguments = arguments, .environment = {"OMP_NUM_THREADS"}, .program = "/usr/bin/unshare"};
}

bool may_make_networks() {
  return ::geteuid() == 0;
}

TEST(Binding, IsTheDefaultWhereEachRankGetsACore) {
  if (cores_of(0).size() < 2 || !may_make_networks()) {
    GTEST_SKIP() << "takes two cores, and root's right to make a network namespace";
  }
  for (const Options& options :
       std::vector<Options>{{"-n", "2"}, {"-n", "2", "--report-bindings"}}) {
    const RunResult result = run_to_end(in_own_network(options));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::map<int, Place> ranks = places(result.out);
    ASSERT_EQ(ranks.size(), 2U) << result.out;
    std::set<int> given(ranks.at(0).cores.begin(), ranks.at(0).cores.end());
    for (const int core : ranks.at(1).cores) {
      EXPECT_TRUE(given.insert(core).second) << result.out;
    }
    const std::vector<int> all = cores_of(0);
    EXPECT_EQ(given, std::set<int>(all.begin(), all.end())) << result.out;
    EXPECT_EQ(count(result.err, "are bound by default; --bind-to none leaves them unbound"),
              options.back() == "--report-bindings" ? 1 : 0)
        << result.err;
  }
}

TEST(Binding, IsNotTheDefaultWhereAnotherJobUsesTheCores) {
  if (cores_of(0).size() < 2 || !may_make_networks()) {
    GTEST_SKIP() << "takes two cores, and root's right to make a network namespace";
  }
  const TemporaryFolder folder;
  const std::string started = folder.path() + "/started";
  const std::string other = std::string(UNISONO_PROGRAM) + " run -n 2 sh -c 'touch " + started +
                            "; exec sleep 60' & "
                            "while [ ! -e " +
                            started + " ]; do sleep 0.01; done; ";
  // The other job ends with the shell's process group after the probe has run as a child of that
  // job.
  const std::string before = other + "\"$@\"; status=$?; kill $!; wait; exit $status; ";
  const RunResult result = run_to_end(in_own_network({"-n", "2", "--report-bindings"}, before));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<int> all = cores_of(0);
  EXPECT_EQ(places(result.out).at(0).cores, all) << result.out;
  EXPECT_EQ(places(result.out).at(1).cores, all) << result.out;
  EXPECT_EQ(count(result.err, "are not bound: another job is using core "), 1) << result.err;
}

TEST(Binding, IsNotTheDefaultForOneRankOrMoreRanksThanCores) {
  const std::vector<int> all = cores_of(0);
  const std::map<std::string, std::string> reasons{
      {"1", "are not bound: the only rank of this node may use all cores"},
      {std::to_string(all.size() + 1), "are not bound: "}};
  for (const auto& [n_ranks, reason] : reasons) {
    const RunResult result = run_to_end(cores_probe({"-n", n_ranks, "--report-bindings"}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(places(result.out).at(0).cores, all) << result.out;
    EXPECT_TRUE(has_line(result.err, core_report(0, all))) << result.err;
    EXPECT_EQ(count(result.err, reason), 1) << result.err;
  }
}

TEST(Binding, CanBeSwitchedOff) {
  const RunResult result = run_to_end(cores_probe({"-n", "2", "--bind-to", "none"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(places(result.out).at(0).cores, cores_of(0)) << result.out;
  EXPECT_EQ(places(result.out).at(1).cores, cores_of(0)) << result.out;
  EXPECT_EQ(result.err, "");
}

TEST(Binding, ToNumaNodesGivesARankAllCoresOfItsNode) {
  if (std::filesystem::exists("/sys/devices/system/node/node1")) {
    GTEST_SKIP() << "takes a machine of one NUMA node";
  }
  for (const Options& options : std::vector<Options>{{"-n", "2", "--bind-to=numa"},
                                                     {"-n", "2", "--numa-binding=node"},
                                                     {"-n", "2", "--bind-to", "socket"}}) {
    const RunResult result = run_to_end(cores_probe(options));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(places(result.out).at(1).cores, cores_of(0)) << result.out;
    EXPECT_EQ(result.err, "");
  }
}

TEST(Binding, TorchrunsWordsMeanTheSame) {
  if (cores_of(0).size() < 2) {
    GTEST_SKIP() << "takes two cores";
  }
  const RunResult result = run_to_end(cores_probe({"-n", "2", "--numa_binding", "exclusive"}));
  const std::map<int, Place> ranks = places(result.out);
  ASSERT_EQ(ranks.size(), 2U) << result.out << result.err;
  EXPECT_NE(ranks.at(0).cores, ranks.at(1).cores);
  EXPECT_EQ(result.err, "");

  const RunResult ignored = run_to_end(cores_probe({"-n", "1", "--numa-binding", "core-complex"}));
  EXPECT_EQ(ignored.exit_code, 0);
  EXPECT_EQ(ignored.err,
            "[unisono launcher] these options of torchrun have no effect here: --numa-binding "
            "core-complex\n");
}

TEST(Binding, TheUsersThreadsStay) {
  RunSetup setup = cores_probe({"-n", "1", "--bind-to", "core", "--report-bindings"});
  setup.environment = {"OMP_NUM_THREADS=7"};
  const RunResult result = run_to_end(setup);
  EXPECT_EQ(places(result.out).at(0).n_threads, 7) << result.out;
  EXPECT_THAT(result.err, HasSubstr("OMP_NUM_THREADS=7 (from the environment)"));
}

TEST(Binding, OnlyTheLaunchersOwnCoresAreGivenAwayAndSharingIsSaid) {
  const RunResult result =
      run_to_end(on_one_core({"-n", "3", "--bind-to", "core", "--report-bindings"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string core = std::to_string(cores_of(0).front());
  for (const auto& [rank, place] : places(result.out)) {
    EXPECT_EQ(place.cores, std::vector<int>{cores_of(0).front()}) << rank;
    EXPECT_EQ(place.n_threads, 1);
  }
  EXPECT_EQ(count(result.err, "3 ranks are bound to 1 core, " + core + ", which they share"), 1)
      << result.err;
}

TEST(Binding, ALauncherThatIsItselfOnOneCoreSaysSo) {
  if (cores_of(0).size() < 2) {
    GTEST_SKIP() << "takes two cores";
  }
  const std::string core = std::to_string(cores_of(0).front());
  const RunResult result = run_to_end(on_one_core({"-n", "2"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count(result.err, "this launcher may use core " + core + " only"), 1) << result.err;
  EXPECT_EQ(run_to_end(on_one_core({"-n", "1"})).err, "");
}

TEST(Binding, HoldsOnEachHostOfAJob) {
  const RunResult result = run_to_end(
      cores_probe({"--hosts", "127.0.0.1:1,localhost:2", "--bind-to=core", "--report-bindings"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::map<int, Place> ranks = places(result.out);
  ASSERT_EQ(ranks.size(), 3U) << result.out;
  EXPECT_EQ(ranks.at(0).cores, cores_of(0));
  if (cores_of(0).size() > 1) {
    EXPECT_NE(ranks.at(1).cores, ranks.at(2).cores);
  }
  for (const auto& [rank, place] : ranks) {
    EXPECT_TRUE(has_line(result.err, core_report(rank, place.cores))) << result.err;
  }
  EXPECT_THAT(result.err, HasSubstr("rank 0 on 127.0.0.1: "));
  EXPECT_THAT(result.err, HasSubstr("rank 2 on localhost: "));
}

TEST(Binding, ANodeOfSeveralSaysItsOwnRanks) {
  const net::PortReservation reserved(net::resolve("127.0.0.1", 0).front());
  const Options options{"--nnodes",
                        "2",
                        "--rdzv_endpoint",
                        "127.0.0.1:" + std::to_string(reserved.port()),
                        "-n",
                        "1"};
  Options second = options;
  second.insert(second.end(), {"--bind-to", "core", "--report-bindings"});
  LaunchRun first(cores_probe(options));
  const RunResult bound = run_to_end(cores_probe(second));
  const RunResult unbound = first.finish();
  EXPECT_EQ(bound.exit_code, 0) << bound.err;
  EXPECT_EQ(unbound.exit_code, 0) << unbound.err;
  EXPECT_EQ(count(bound.err, ", OMP_NUM_THREADS="), 1) << bound.err;
  EXPECT_THAT(unbound.err, Not(HasSubstr("OMP_NUM_THREADS=")));
}

TEST(Binding, AWordThatIsNoneIsRefused) {
  const RunResult result = run_to_end(cores_probe({"--bind-to", "moon"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--bind-to"));
  EXPECT_EQ(split_lines(result.err).size(), 1U) << result.err;
}

}  // namespace
}  // namespace unisono::launch_test
