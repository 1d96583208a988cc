#include "unisono/report/progress_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::report {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RateMeter, KnowsNothingBeforeTheFirstStep) {
  const RateMeter::Time start{};
  EXPECT_EQ(RateMeter(start).rates(start).steps_per_second, 0);
  EXPECT_EQ(RateMeter(start).rates(start + seconds(1)).steps_per_second, 0);
}

TEST(RateMeter, CountsFromTheStart) {
  const RateMeter::Time start{};
  RateMeter meter(start);
  for (int step = 1; step <= 10; ++step) {
    meter.note(start + milliseconds(500) * step, step, 64 * step);
  }
  EXPECT_DOUBLE_EQ(meter.rates(start + seconds(5)).steps_per_second, 2);
  EXPECT_DOUBLE_EQ(meter.rates(start + seconds(5)).samples_per_second, 128);
  EXPECT_DOUBLE_EQ(meter.rates(start + seconds(10)).steps_per_second, 1);
}

// The rate must reflect a speed-up before the training ends.
TEST(RateMeter, ForgetsWhatIsLongAgo) {
  const RateMeter::Time start{};
  RateMeter meter(start);
  for (int step = 1; step <= 100; ++step) {
    meter.note(start + seconds(10) * step, step, 0);
  }
  EXPECT_NEAR(meter.rates(start + seconds(1000)).steps_per_second, 0.1, 1e-9);
  for (int step = 1; step <= 400; ++step) {
    meter.note(start + seconds(1000) + milliseconds(100) * step, 100 + step, 0);
  }
  EXPECT_NEAR(meter.rates(start + seconds(1040)).steps_per_second, 10, 0.01);
}

}  // namespace

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ProgressState half_way() {
  return {.title = "epoch 1/3",
          .unit = "images",
          .step = 210,
          .total = 420,
          .n_steps = 210,
          .n_samples = 13440,
          .seconds = 4,
          .steps_per_second = 52.5,
          .samples_per_second = 3360,
          .values = {{"loss", 0.31274}, {"accuracy", 0.9}}};
}

std::size_t n_columns_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

TEST(ProgressText, ALineHasAll) {
  EXPECT_EQ(
      line_text(half_way()),
      "epoch 1/3: step 210 of 420 (50%), 3360 images/s, 4.0 s left, loss 0.3127, accuracy 0.9");
  EXPECT_EQ(end_text(half_way()),
            "epoch 1/3: 210 of 420 steps in 4.0 s, 3360 images/s, loss 0.3127, accuracy 0.9");
}

TEST(ProgressText, WhatIsNotKnownIsLeftOut) {
  EXPECT_EQ(line_text({.step = 3}), "step 3");
  EXPECT_EQ(line_text({.step = 3, .steps_per_second = 0.25}), "step 3, 0.25 steps/s");
  EXPECT_EQ(bar_text({.step = 3}, 80, false), "step 3");
  EXPECT_EQ(end_text({.total = 3}), "0 of 3 steps in 0.0 s");
}

TEST(ProgressText, StepsBeyondTheTotalCount) {
  const ProgressState state{.step = 3, .total = 2, .steps_per_second = 1};
  EXPECT_EQ(line_text(state), "step 3 of 2 (150%), 1 steps/s");
  EXPECT_THAT(bar_text(state, 40, false), HasSubstr("█ 150% 3/2"));
  EXPECT_THAT(bar_text(state, 40, false), Not(HasSubstr("░")));
}

TEST(ProgressText, ABarHasAll) {
  EXPECT_EQ(bar_text(half_way(), 200, false),
            "epoch 1/3  ███████████████░░░░░░░░░░░░░░░  50% 210/420  3360 images/s  4.0 s left  "
            "loss 0.3127  accuracy 0.9");
}

TEST(ProgressText, ANarrowTerminalHasTheBeginning) {
  for (const std::size_t width : {1U, 10U, 40U, 79U, 85U, 100U, 200U}) {
    EXPECT_LE(n_columns_of(bar_text(half_way(), width, false)), width) << width;
  }
  EXPECT_EQ(bar_text(half_way(), 9, false), "epoch 1/3");
  EXPECT_EQ(bar_text(half_way(), 61, false),
            "epoch 1/3  █████░░░░░  50% 210/420  3360 images/s  4.0 s left");
}

TEST(ProgressText, OnlyTheFullPartHasAColour) {
  const ProgressState state{.step = 1, .total = 2};
  EXPECT_EQ(bar_text(state, 16, true), "\033[32m███\033[0m░░░░  50% 1/2");
  EXPECT_EQ(bar_text({.step = 2, .total = 2}, 16, true), "\033[32m███████\033[0m 100% 2/2");
}

TEST(ProgressText, NothingMovesTheCursor) {
  EXPECT_EQ(printable("a\nb\033[2Jc\xFF"), "a?b?[2Jc?");
  EXPECT_EQ(line_text({.title = "\r", .step = 1, .values = {{"\n", NAN}}}), "?: step 1, ? nan");
}

TEST(ProgressText, DurationsAreShort) {
  EXPECT_EQ(duration_text(0), "0.0 s");
  EXPECT_EQ(duration_text(59.94), "59.9 s");
  EXPECT_EQ(duration_text(62), "1:02");
  EXPECT_EQ(duration_text(3 * 3600 + 62), "3:01:02");
  EXPECT_EQ(duration_text(1e300), duration_text(1e15));
}

TEST(JsonLine, HasAllNumbers) {
  const auto line = nlohmann::json::parse(json_line(half_way(), 3, 1.5));
  EXPECT_EQ(line, nlohmann::json::parse(R"({"time": 1.5, "rank": 3, "title": "epoch 1/3",
      "step": 210, "total": 420, "seconds": 4.0, "steps_per_second": 52.5, "unit": "images",
      "samples": 13440, "samples_per_second": 3360.0, "values": {"loss": 0.31274, "accuracy": 0.9}})"));
}

TEST(JsonLine, IsValidWhateverTheValues) {
  const std::string text =
      json_line({.values = {{"a\"\n\xFF", NAN}, {"b", INFINITY}, {"c", -INFINITY}}}, 0, 0);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto values = nlohmann::json::parse(text)["values"];
  EXPECT_EQ(values.front(), "NaN");
  EXPECT_EQ(values["b"], "Infinity");
  EXPECT_EQ(values["c"], "-Infinity");
}

}  // namespace
}  // namespace unisono::report
