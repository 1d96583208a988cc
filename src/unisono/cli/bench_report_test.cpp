#include "unisono/cli/bench_report.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"

namespace unisono::cli::bench {
namespace {

// A rank with calls of a given duration, which reports slower ranks of a given difference.
class FakeRanks final : public TimedRanks {
 public:
  FakeRanks(std::chrono::microseconds call, double slower_by)
      : call_(call), slower_by_(slower_by) {}

  void barrier() override { ++n_barriers; }

  void repeat(int n_calls) override {
    blocks.push_back(n_calls);
    const auto end = std::chrono::steady_clock::now() + n_calls * call_;
    while (std::chrono::steady_clock::now() < end) {
    }
  }

  void max_of_ranks(std::span<double> values) override {
    for (double& value : values) {
      value += slower_by_;
    }
  }

  int n_barriers = 0;
  std::vector<int> blocks;

 private:
  std::chrono::microseconds call_;
  double slower_by_;
};

TEST(BenchSampling, QuantilesAreSamples) {
  std::vector<double> seconds;
  for (int i = 200; i >= 1; --i) {
    seconds.push_back(i);
  }
  const Summary summary = summarize(seconds);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.median, 100);
  EXPECT_EQ(summary.p99, 198);
  EXPECT_EQ(summary.n_samples, 200);
  EXPECT_EQ(summarize({3, 1}).median, 1);
  EXPECT_EQ(summarize({3, 1}).p99, 3);
}

TEST(BenchSampling, LongCallsAreTimedOneByOne) {
  FakeRanks ranks(std::chrono::microseconds(500), 0);
  const Summary summary = sample(ranks, std::chrono::duration<double>(0.1));
  EXPECT_GE(summary.min, 500e-6);
  EXPECT_GE(summary.n_samples, 20);
  EXPECT_EQ(ranks.blocks.back(), 1);
  EXPECT_EQ(ranks.n_barriers, static_cast<int>(ranks.blocks.size()));
}

TEST(BenchSampling, ShortCallsShareASampleOf40Microseconds) {
  FakeRanks ranks(std::chrono::microseconds(4), 0);
  const Summary summary = sample(ranks, std::chrono::duration<double>(0.1));
  // Calls can only take longer than the given time. So a sample has at most 10 calls, and more than
  // 1 unless the machine was blocked during the last half of the warm-up.
  EXPECT_GT(ranks.blocks.back(), 1);
  EXPECT_LE(ranks.blocks.back(), 10);
  EXPECT_GE(summary.min, 4e-6);
  EXPECT_GE(summary.median, summary.min);
  EXPECT_GE(summary.p99, summary.median);
}

TEST(BenchSampling, ThereAreAtLeast20SamplesHoweverShortTheTime) {
  FakeRanks ranks(std::chrono::microseconds(100), 0);
  EXPECT_EQ(sample(ranks, std::chrono::duration<double>(0)).n_samples, 20);
}

TEST(BenchSampling, TheSlowestRankCounts) {
  FakeRanks ranks(std::chrono::microseconds(1), 0.01);
  EXPECT_GE(sample(ranks, std::chrono::duration<double>(0)).min, 0.01);
}

}  // namespace

namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

Result example() {
  return {.op = "all_reduce",
          .n_ranks = 4,
          .n_nodes = 2,
          .n_bytes = 1000000,
          .dtype = "f32",
          .memory = "private",
          .algorithm = "auto",
          .time = {.median = 250e-6, .min = 200e-6, .p99 = 300.5e-6, .n_samples = 321},
          .bus_factor = 1.5,
          .busiest_bytes = 3000000,
          .n_wrong = 0};
}

TEST(BenchReport, BandwidthIsBytesByTheMedianTime) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(example()), 4.0);
  EXPECT_DOUBLE_EQ(bus_bandwidth(example()), 6.0);
  Result nothing = example();
  nothing.time = {};
  EXPECT_EQ(algorithm_bandwidth(nothing), 0);
}

TEST(BenchReport, AResultIsALineOfJson) {
  EXPECT_EQ(json_line(example()),
            R"({"op":"all_reduce","ranks":4,"nodes":2,"bytes":1000000,"dtype":"f32",)"
            R"("memory":"private","algorithm":"auto","median_us":250,"min_us":200,)"
            R"("p99_us":300.5,"algbw_gbps":4,"busbw_gbps":6,"busiest_bytes":3000000,"wrong":0})");
  Result unchecked = example();
  unchecked.n_wrong.reset();
  unchecked.busiest_bytes.reset();
  EXPECT_THAT(json_line(unchecked), EndsWith(R"("busiest_bytes":null,"wrong":null})"));
}

TEST(BenchReport, ColumnsStandUnderTheirNames) {
  const std::string header = table_header();
  Result result = example();
  result.n_wrong = 12345;
  const std::string row = table_row(result);
  ASSERT_EQ(row.size(), header.size());
  const auto under = [&](const std::string& name) {
    const std::size_t end = header.find(name) + name.size();
    return row.substr(row.rfind(' ', end - 1) + 1, end - row.rfind(' ', end - 1) - 1);
  };
  EXPECT_EQ(under("bytes"), "1000000");
  EXPECT_EQ(under("samples"), "321");
  EXPECT_EQ(under("median us"), "250.000");
  EXPECT_EQ(under("min us"), "200.000");
  EXPECT_EQ(under("p99 us"), "300.500");
  EXPECT_EQ(under("algbw GB/s"), "4.000");
  EXPECT_EQ(under("busbw GB/s"), "6.000");
  EXPECT_EQ(under("algorithm"), "auto");
  EXPECT_EQ(under("wrong"), "12345");
  EXPECT_THAT(row, HasSubstr("all_reduce"));
}

TEST(BenchReport, AnAlgorithmThatNobodyAskedForIsMarkedAsSuch) {
  Result result = example();
  result.algorithm = "halving_doubling";
  EXPECT_THAT(table_row(result), Not(HasSubstr("auto")));
  result.is_algorithm_auto = true;
  const std::string row = table_row(result);
  EXPECT_THAT(row, HasSubstr(" auto: halving_doubling "));
  EXPECT_EQ(row.size(), table_header().size());
  EXPECT_THAT(json_line(result), HasSubstr(R"("algorithm":"halving_doubling")"));
}

}  // namespace

namespace {

namespace fs = std::filesystem;

class BenchJsonFile : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name = "results") const {
    return folder_.path() + "/" + name;
  }

  [[nodiscard]] std::string content() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  [[nodiscard]] std::ptrdiff_t n_files() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  test::TemporaryFolder folder_;
};

TEST_F(BenchJsonFile, LooksAtThePathWithoutTouchingTheFile) {
  check_json_path(path());
  EXPECT_EQ(n_files(), 0);
  write_json(path(), "old\n");
  check_json_path(path());
  EXPECT_EQ(content(), "old\n");
  EXPECT_EQ(n_files(), 1);
}

TEST_F(BenchJsonFile, TakesThePlaceOfWhatWasThere) {
  write_json(path(), "old\nlines\n");
  write_json(path(), "new\n");
  EXPECT_EQ(content(), "new\n");
  EXPECT_EQ(n_files(), 1);
}

TEST_F(BenchJsonFile, KeepsALinkThatLeadsToIt) {
  write_json(path(), "old\n");
  fs::create_symlink(path(), path("link"));
  write_json(path("link"), "new\n");
  EXPECT_EQ(content(), "new\n");
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(BenchJsonFile, KeepsALinkToAFileThatIsNotThereYet) {
  fs::create_symlink("results", path("link"));
  check_json_path(path("link"));
  write_json(path("link"), "new\n");
  EXPECT_EQ(content(), "new\n");
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(BenchJsonFile, KeepsThePermissions) {
  write_json(path(), "old\n");
  const auto own = fs::perms::owner_read | fs::perms::owner_write;
  fs::permissions(path(), own);
  write_json(path(), "new\n");
  EXPECT_EQ(content(), "new\n");
  EXPECT_EQ(fs::status(path()).permissions(), own);
}

TEST_F(BenchJsonFile, WritesToADeviceAsItIs) {
  check_json_path("/dev/null");
  write_json("/dev/null", "lines\n");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(BenchJsonFile, SaysWhatCannotBeWritten) {
  for (const std::string& wrong : {path("no_folder/results"), folder_.path()}) {
    try {
      check_json_path(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSystem);
      EXPECT_EQ(std::string(error.what()).find("bench: cannot write " + wrong + ": "), 0U);
    }
  }
  EXPECT_EQ(n_files(), 0);
}

}  // namespace
}  // namespace unisono::cli::bench
