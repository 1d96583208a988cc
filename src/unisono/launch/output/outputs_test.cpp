#include "unisono/launch/output/outputs.h"

#include <unistd.h>

#include <iterator>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::launch {
namespace {

using ::testing::ElementsAre;

// Keeps the written text.
class MemorySink final : public Sink {
 public:
  void append(std::string_view text) override { text_ += text; }

  void flush() override {}

  [[nodiscard]] std::size_t backlog() const override { return 0; }

  [[nodiscard]] bool is_terminal() const override { return false; }

  [[nodiscard]] bool has_colour() const override { return false; }

  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

// A rank's stdout, passed on to a pipe or file.
class WorkerOutputTest : public ::testing::Test {
 protected:
  void start(OutputStyle style) {
    output_.emplace(
        Source{0, OutputStream::kOut}, std::move(style), console_, tail_, [](auto&&...) {});
    write_end_ = output_->open(-1);
  }

  // Returns the part of the text that is passed on at once.
  std::string write(const std::string& text) {
    EXPECT_EQ(::write(write_end_.get(), text.data(), text.size()), std::ssize(text));
    EXPECT_TRUE(output_->read_some());
    return out_.take();
  }

  std::string pass_on_part() {
    output_->pass_on_part();
    return out_.take();
  }

  MemorySink out_;
  MemorySink err_;
  Console console_{out_, err_};
  Tail tail_;
  std::optional<WorkerOutput> output_;
  Fd write_end_;
};

TEST_F(WorkerOutputTest, AFrameIsPassedOnAtOnceAndTheRestOfALineLater) {
  start({.prefix = "0: "});
  EXPECT_EQ(write("\r10%\r20%"), "0: \r10%\r");
  EXPECT_FALSE(output_->part_deadline().is_never());
  EXPECT_FALSE(output_->part_deadline().has_passed());
  EXPECT_EQ(pass_on_part(), "20%");
  EXPECT_TRUE(output_->part_deadline().is_never());
  EXPECT_EQ(write(" done\nnext"), " done\n");
  EXPECT_THAT(tail_.lines(), ElementsAre("20% done"));
  EXPECT_EQ(pass_on_part(), "0: next");
  output_->finish();
  EXPECT_EQ(out_.take(), "\n");
}

TEST_F(WorkerOutputTest, AFrameWaitsWhereItWouldEndAnothersRow) {
  start({});
  console_.put_partial({1, OutputStream::kOut}, "", {"other", 0});
  (void)out_.take();
  EXPECT_EQ(write("10%\r20%\r"), "");
  EXPECT_EQ(pass_on_part(), "\n10%\r20%\r");
}

TEST_F(WorkerOutputTest, WhereOnlyWholeLinesCountAPartIsOne) {
  std::vector<std::string> lines;
  start({.on_line = [&lines](Source, std::string_view text) { lines.emplace_back(text); }});
  (void)write("\r10%\r20%\r");
  EXPECT_THAT(lines, ElementsAre());
  (void)pass_on_part();
  (void)write("30%\r\nwhole\npart");
  (void)pass_on_part();
  (void)write("\n\n");
  EXPECT_THAT(lines, ElementsAre("20%", "30%\r", "whole", "part", ""));
  EXPECT_THAT(tail_.lines(), ElementsAre("30%", "whole", "part", ""));
}

}  // namespace
}  // namespace unisono::launch
