#include "unisono/cli/bench_report.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::cli::bench {
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
}  // namespace unisono::cli::bench
