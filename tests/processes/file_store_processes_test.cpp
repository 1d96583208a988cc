// Processes that meet through a file, and are killed while they write to it.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/store/file_store.h"

#include "processes/payload.h"
#include "processes/spawn.h"
#include "support/temporary_folder.h"

namespace unisono::test {
namespace {

using store::FileStore;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kLargeBytes = std::size_t{1} << 20;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

class FileStoreProcesses : public ::testing::Test {
 protected:
  std::size_t start(Processes& processes,
                    const std::string& task,
                    const std::vector<std::string>& arguments = {}) const {
    std::vector<std::string> command{UNISONO_FILE_STORE_PROGRAM, task, path_};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return processes.start(command);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/store";
};

TEST_F(FileStoreProcesses, Meet) {
  Processes processes;
  for (int i = 0; i < 4; ++i) {
    (void)start(processes, "meet", {"4"});
  }
  std::multiset<std::string> last_lines;
  for (const ProcessResult& result : processes.finish()) {
    EXPECT_THAT(result.out, HasSubstr("rank 0\nrank 1\nrank 2\nrank 3\nI am "));
    last_lines.insert(result.out.substr(result.out.find("I am")));
  }
  EXPECT_EQ(last_lines,
            (std::multiset<std::string>{"I am 0\n", "I am 1\n", "I am 2\n", "I am 3\n"}));
}

TEST_F(FileStoreProcesses, PopEachValueOnce) {
  constexpr int kValues = 300;
  Processes processes;
  for (int i = 0; i < 3; ++i) {
    (void)start(processes, "pop", {std::to_string(kValues / 3)});
  }
  FileStore store({.path = path_}, soon());
  std::multiset<std::string> expected;
  for (int value = 0; value < kValues; ++value) {
    store.queue_push("q", std::to_string(value));
    expected.insert(std::to_string(value));
  }
  std::multiset<std::string> popped;
  for (const ProcessResult& result : processes.finish()) {
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      if (line != "open") {
        popped.insert(line);
      }
    }
  }
  EXPECT_EQ(popped, expected);
}

// Returns how many steps of each kind a process has acknowledged in its output, by the name of the
// kind.
std::map<std::string, int> acknowledged(const std::string& output) {
  std::map<std::string, int> n_steps;
  std::istringstream lines(output.substr(0, output.rfind('\n') + 1));
  for (std::string line; std::getline(lines, line);) {
    ++n_steps[line.substr(0, line.find(' '))];
  }
  return n_steps;
}

// The contents that a store must have after processes have churned.
class Ledger {
 public:
  explicit Ledger(FileStore& store) : store_(store) {
    while (const std::optional<std::string> value = store.try_queue_pop("q")) {
      queued_.insert(*value);
    }
  }

  // A process may have completed one step more than its output reports.
  void expect(const std::string& name, const std::string& output, std::size_t n_large_bytes) {
    std::map<std::string, int> n_steps = acknowledged(output);
    for (int step = 0; step <= n_steps["set"]; ++step) {
      const auto value = store_.try_get(name + "/" + std::to_string(step));
      const bool may_be_missing = step == n_steps["set"];
      EXPECT_TRUE(value ? *value == payload(name, step, n_large_bytes) : may_be_missing)
          << name << ", step " << step << " of " << n_steps["set"];
    }
    for (int step = 0; step <= n_steps["pushed"]; ++step) {
      const std::size_t n = queued_.count(name + ":" + std::to_string(step));
      EXPECT_TRUE(n == 1 || (n == 0 && step == n_steps["pushed"])) << name << ", step " << step;
    }
    EXPECT_EQ(store_.try_get(name + "/" + std::to_string(n_steps["set"] + 1)), std::nullopt);
    n_added_ += n_steps["added"];
    ++n_processes_;
  }

  void expect_total() {
    const int total = std::stoi(store_.get("total", soon()));
    EXPECT_GE(total, n_added_);
    EXPECT_LE(total, n_added_ + n_processes_);
  }

 private:
  FileStore& store_;
  std::multiset<std::string> queued_;
  int n_added_ = 0;
  int n_processes_ = 0;
};

TEST_F(FileStoreProcesses, LoseNothingWhenOthersAreKilledAtAnyMoment) {
  constexpr int kRounds = 6;
  constexpr int kVictims = 10;
  constexpr const char* kSurvivorSteps = "150";
  const std::uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    path_ = folder_.path() + "/store" + std::to_string(round);
    Processes survivors;
    for (const char* const name : {"s0", "s1"}) {
      (void)start(survivors, "churn", {name, "500", kSurvivorSteps});
    }
    std::vector<std::string> outputs;
    for (int victim = 0; victim < kVictims; ++victim) {
      Processes processes;
      const auto process =
          start(processes,
                "churn",
                {"v" + std::to_string(victim), std::to_string(kLargeBytes), "1000000"});
      if (processes.wait_for_output(process, "open")) {
        // The moment of the kill is the subject of this test.
        std::this_thread::sleep_for(std::chrono::microseconds(
            std::uniform_int_distribution<std::int64_t>(0, 8000)(random)));
        processes.send_signal(process, SIGKILL);
      }
      outputs.push_back(processes.finish()[process].out);
    }
    const std::vector<ProcessResult> results = survivors.finish();
    FileStore store({.path = path_}, soon());
    Ledger ledger(store);
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_THAT(results[i].out, HasSubstr("churned")) << results[i].out << results[i].err;
      ledger.expect("s" + std::to_string(i), results[i].out, 500);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      ledger.expect("v" + std::to_string(i), outputs[i], kLargeBytes);
    }
    ledger.expect_total();
  }
}

// A small private file system that no other process can see and that ends with the process.
class SmallDisk : public FileStoreProcesses {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "mounting a file system takes root";
    }
    const ProcessResult result = on_small_disk("true");
    if (result.exit_code != 0) {
      GTEST_SKIP() << "no private file system here: " << result.err;
    }
  }

  // Runs shell commands with the program's path in $P and the store's path in $S.
  ProcessResult on_small_disk(const std::string& commands) const {
    Processes processes;
    (void)processes.start(
        {"unshare",
         "-m",
         "sh",
         "-c",
         "mount -t tmpfs -o size=256k none " + folder_.path() + " && " + commands},
        {{"P", UNISONO_FILE_STORE_PROGRAM}, {"S", path_}});
    return processes.finish()[0];
  }
};

TEST_F(SmallDisk, FullIsAnErrorAndWhatWasThereStays) {
  const ProcessResult result = on_small_disk("$P fill $S");
  EXPECT_THAT(result.out, AllOf(HasSubstr("System: store " + path_), HasSubstr("No space left")));
  EXPECT_THAT(result.out, HasSubstr("\nall there\nall there\n"));
}

TEST_F(SmallDisk, FullBeforeTheFirstIsAnErrorAndLeavesAFileThatCanBeUsed) {
  const std::string filler = folder_.path() + "/filler";
  const ProcessResult result =
      on_small_disk("! head -c 1M /dev/zero > " + filler + " 2>/dev/null; $P meet $S 1; rm " +
                    filler + " && $P meet $S 1");
  EXPECT_THAT(result.out, AllOf(HasSubstr("System: store " + path_), HasSubstr("No space left")));
  EXPECT_THAT(result.out, HasSubstr("I am 0"));
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

TEST_F(SmallDisk, ReadOnlyIsAnError) {
  const std::string lock = "mount -o remount,ro " + folder_.path();
  const ProcessResult result = on_small_disk("$P meet $S 1 && " + lock + " && $P meet $S 1");
  EXPECT_THAT(result.out, HasSubstr("I am 0"));
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("System: store " + path_), HasSubstr("Read-only file system")));
}

}  // namespace
}  // namespace unisono::test
