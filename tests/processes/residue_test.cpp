// A job that is killed at any moment leaves no process, no file and no shared memory behind.
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"

#include "processes/spawn.h"
#include "support/temporary_folder.h"

namespace unisono::test {
namespace {

using ::testing::AnyOf;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

// Covers the start of a job, its rendezvous, its operations, its end, and the start of the next
// job.
constexpr std::chrono::microseconds kLatest{150'000};

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    names.insert(entry.path().filename());
  }
  return names;
}

// Returns living processes that satisfy `is_wanted`, which receives the process's folder in /proc.
std::vector<pid_t> find_processes(const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<pid_t> pids;
  for (const std::string& name : names_in("/proc")) {
    const std::string folder = "/proc/" + name;
    if (std::isdigit(static_cast<unsigned char>(name.front())) == 0 || !is_wanted(folder)) {
      continue;
    }
    const std::string stat = read_file(folder + "/stat");
    const std::size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat.compare(name_end + 2, 1, "Z") != 0) {
      pids.push_back(std::stoi(name));
    }
  }
  return pids;
}

// Returns new entries of /dev/shm that no process maps. Other programs may start and end meanwhile.
std::vector<std::string> orphans_in_shm(const std::set<std::string>& before) {
  std::vector<std::string> orphans;
  for (const std::string& name : names_in("/dev/shm")) {
    const std::string path = "/dev/shm/" + name;
    if (!before.contains(name) && find_processes([&](const std::string& folder) {
                                    return read_file(folder + "/maps").find(path) !=
                                           std::string::npos;
                                  }).empty()) {
      orphans.push_back(name);
    }
  }
  return orphans;
}

// Returns the last result of `look`: empty, or the entries that remain at the deadline.
template <class Look>
auto wait_until_empty(const Look& look, Deadline deadline) {
  auto found = look();
  while (!found.empty() && !deadline.has_passed()) {
    std::this_thread::yield();
    found = look();
  }
  return found;
}

// Jobs of two ranks with separate folders that are killed at random moments.
class Victims {
 public:
  explicit Victims(std::uint32_t seed) : random_(seed), shm_(names_in("/dev/shm")) {}

  // Kills all ranks together, without a launcher.
  void kill_ranks() {
    const ReservedPort port;
    Processes processes;
    for (const char* const rank : {"0", "1"}) {
      Variables variables = environment();
      variables.insert({{"RANK", rank},
                        {"WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", port.text()}});
      (void)processes.start({UNISONO_CHURN_PROGRAM}, variables);
    }
    wait_a_while();
    processes.send_signal(0, SIGKILL);
    processes.send_signal(1, SIGKILL);
    expect_killed(processes);
  }

  // Kills the launcher. Processes that the launcher started must end by themselves.
  void kill_launcher() {
    Processes processes;
    (void)processes.start({UNISONO_PROGRAM, "run", "-n", "2", UNISONO_CHURN_PROGRAM},
                          environment());
    wait_a_while();
    processes.send_signal(0, SIGKILL);
    expect_killed(processes);
  }

  // Call after all jobs have been killed.
  void expect_nothing_left() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(10));
    EXPECT_THAT(wait_until_empty([&] { return marked(); }, deadline), IsEmpty()) << moments();
    EXPECT_THAT(home_.names(), IsEmpty()) << moments();
    // Another program may just have made a file that is not mapped yet.
    EXPECT_THAT(wait_until_empty([&] { return orphans_in_shm(shm_); }, deadline), IsEmpty())
        << moments();
  }

  [[nodiscard]] int n_lived_once() const { return n_lived_once_; }

 private:
  [[nodiscard]] Variables environment() const {
    return {{"HOME", home_.path()},
            {"TMPDIR", home_.path()},
            {"XDG_RUNTIME_DIR", home_.path()},
            {"UNISONO_TEST_MARK", home_.path()}};
  }

  // The moment of the kill is the subject of this test.
  void wait_a_while() {
    moment_ = std::chrono::microseconds(
        std::uniform_int_distribution<std::int64_t>(0, kLatest.count())(random_));
    std::this_thread::sleep_for(moment_);
  }

  [[nodiscard]] std::string moments() const {
    return "killed after " + std::to_string(moment_.count()) + " us";
  }

  [[nodiscard]] std::vector<pid_t> marked() const {
    const std::string mark = "UNISONO_TEST_MARK=" + home_.path();
    return find_processes([&](const std::string& folder) {
      return read_file(folder + "/environ").find(mark) != std::string::npos;
    });
  }

  void expect_killed(Processes& processes) {
    bool has_lived_once = false;
    const std::vector<ProcessResult> results = processes.finish();
    EXPECT_EQ(results.front().exit_code, 128 + SIGKILL);
    for (const ProcessResult& result : results) {
      // Rank 1 lives a moment longer than rank 0, and may detect the loss and end by itself.
      EXPECT_THAT(result.exit_code, AnyOf(128 + SIGKILL, 1))
          << moments() << result.out << result.err;
      has_lived_once = has_lived_once || result.out.find("lived once") != std::string::npos;
    }
    n_lived_once_ += has_lived_once ? 1 : 0;
  }

  std::mt19937 random_;
  std::set<std::string> shm_;
  TemporaryFolder home_;
  std::chrono::microseconds moment_{};
  int n_lived_once_ = 0;
};

TEST(Killed, AJobLeavesNothingBehind) {
  const std::uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  Victims victims(seed);
  for (int n = 0; n < UNISONO_N_MOMENTS / 2 && !::testing::Test::HasFailure(); ++n) {
    victims.kill_ranks();
    victims.expect_nothing_left();
    victims.kill_launcher();
    victims.expect_nothing_left();
  }
  std::printf("%d of %d jobs had ended once before\n", victims.n_lived_once(), UNISONO_N_MOMENTS);
}

}  // namespace
}  // namespace unisono::test
