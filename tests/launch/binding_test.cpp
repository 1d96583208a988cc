// Ranks that are bound to cores, as they themselves see it, and what is said of that.
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

#include "unisono/base/cores.h"
#include "unisono/net/address.h"
#include "unisono/net/port_reservation.h"

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Options = std::vector<std::string>;

// What a rank says of itself.
struct Place {
  std::vector<int> cores;
  int n_threads = 0;
};

// By rank, from lines such as "[alpha:1] rank 1 cores 0,1 threads 2".
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

// `unisono` under taskset, on the first core that this test may use.
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

TEST(Binding, IsNotDoneUnlessAskedFor) {
  const std::vector<int> all = cores_of(0);
  for (const Options& options : std::vector<Options>{
           {"-n", "2"}, {"-n", "2", "--bind-to", "none"}, {"-n", "2", "--report-bindings"}}) {
    const RunResult result = run_to_end(cores_probe(options));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(places(result.out).at(1).cores, all) << result.out;
    EXPECT_EQ(has_line(result.err, core_report(0, all)), options.back() == "--report-bindings")
        << result.err;
  }
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
            "[unisono launcher] these options of torchrun say nothing here: --numa-binding "
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

TEST(Binding, WithoutHwlocIsRefusedOnlyWhereItIsAskedFor) {
  const TemporaryFolder folder;
  // The loader takes it before the one of the system, and can't load it.
  (void)folder.write("libhwloc.so.15", "no library");
  RunSetup setup = cores_probe({"-n", "2", "--bind-to", "core"});
  setup.environment.push_back("LD_LIBRARY_PATH=" + folder.path());
  const RunResult refused = run_to_end(setup);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(places(refused.out), IsEmpty());
  EXPECT_EQ(split_lines(refused.err).size(), 1U) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("apt-get install libhwloc15"));
  EXPECT_THAT(refused.err, HasSubstr("--bind-to none does without"));

  setup.arguments = probe({"-n", "2", "--report-bindings"}, {"cores"});
  const RunResult reported = run_to_end(setup);
  EXPECT_EQ(reported.exit_code, 0);
  EXPECT_TRUE(has_line(reported.err, "rank 1 on [^ ]+: cores? [-,0-9]+, OMP_NUM_THREADS="))
      << reported.err;
  EXPECT_EQ(count(reported.err, "NUMA nodes are not known"), 1) << reported.err;

  setup.arguments = probe({"-n", "2"}, {"cores"});
  EXPECT_EQ(run_to_end(setup).err, "");
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
