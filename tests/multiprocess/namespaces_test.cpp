// Ranks in network namespaces, joined by a virtual cable: nodes that the kernel keeps apart.
#include <unistd.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multiprocess/spawn.h"

namespace unisono::test {
namespace {

// `ip` with arguments; its complaint, or "" after success.
std::string ip(const std::string& arguments) {
  Processes processes;
  (void)processes.start({"sh", "-c", "ip " + arguments});
  const std::vector<ProcessResult> results = processes.finish();
  return results[0].exit_code == 0 ? "" : "ip " + arguments + ": " + results[0].err;
}

// Two namespaces with an end of a cable each, 10.213.77.1 and .2. They go with the object.
class CabledNamespaces {
 public:
  CabledNamespaces() {
    const std::string cable = "u" + std::to_string(::getpid());
    add("netns add " + name(0));
    add("netns add " + name(1));
    add("link add " + cable + "a netns " + name(0) + " type veth peer name " + cable + "b netns " +
        name(1));
    for (int i = 0; i < 2; ++i) {
      const std::string device = cable + (i == 0 ? "a" : "b");
      add("-n " + name(i) + " address add " + address(i) + "/24 dev " + device);
      add("-n " + name(i) + " link set " + device + " up");
      add("-n " + name(i) + " link set lo up");
    }
  }

  ~CabledNamespaces() {
    (void)ip("netns del " + name(0));
    (void)ip("netns del " + name(1));
  }

  CabledNamespaces(const CabledNamespaces&) = delete;
  CabledNamespaces& operator=(const CabledNamespaces&) = delete;
  CabledNamespaces(CabledNamespaces&&) = delete;
  CabledNamespaces& operator=(CabledNamespaces&&) = delete;

  [[nodiscard]] static std::string name(int i) {
    return "unisono-test-" + std::to_string(::getpid()) + (i == 0 ? "a" : "b");
  }

  [[nodiscard]] static std::string address(int i) { return "10.213.77." + std::to_string(i + 1); }

  /// Why they could not be made; empty if they are there.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  void add(const std::string& arguments) {
    if (problem_.empty()) {
      problem_ = ip(arguments);
    }
  }

  std::string problem_;
};

TEST(Namespaces, RanksInTwoOfThemReachEachOtherByTcp) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "network namespaces take root";
  }
  const CabledNamespaces namespaces;
  if (!namespaces.problem().empty()) {
    GTEST_SKIP() << "no network namespaces here: " << namespaces.problem();
  }
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    (void)processes.start(
        {"ip", "netns", "exec", CabledNamespaces::name(rank), UNISONO_RANK_PROGRAM, "hello"},
        {{"RANK", std::to_string(rank)},
         {"WORLD_SIZE", "2"},
         {"MASTER_ADDR", CabledNamespaces::address(0)},
         {"MASTER_PORT", "29500"},
         {"UNISONO_SECRET", "known to both"}});
  }
  const std::vector<ProcessResult> results = processes.finish();
  for (int rank = 0; rank < 2; ++rank) {
    const ProcessResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "(" + std::to_string(rank) + ",2) local (0,1) all_reduce(ones)=2\n");
  }
}

}  // namespace
}  // namespace unisono::test
