#include "sim_device/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sim {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uintptr_t kBlock = 0x1000;
constexpr std::size_t kSize = 0x400;

/// Two streams and a block.
class CheckerTest : public ::testing::Test {
 protected:
  CheckerTest() { checker_.add_block(kBlock, kSize); }

  void read(std::size_t stream, std::uintptr_t from = 0, std::uintptr_t to = kSize) {
    launch(stream, {kBlock + from, kBlock + to, false, "read"});
  }

  void write(std::size_t stream, std::uintptr_t from = 0, std::uintptr_t to = kSize) {
    launch(stream, {kBlock + from, kBlock + to, true, "write"});
  }

  // Stream `later` waits for all that stream `earlier` has launched.
  void order(std::size_t earlier, std::size_t later) {
    checker_.wait(later, checker_.record(earlier));
  }

  Checker checker_;
  const std::size_t a_ = checker_.add_stream("stream a");
  const std::size_t b_ = checker_.add_stream("stream b");
  const std::size_t c_ = checker_.add_stream("stream c");

 private:
  void launch(std::size_t stream, Access access) { checker_.launch(stream, {&access, 1}); }
};

TEST_F(CheckerTest, AReadWithoutAWaitNamesBothOperationsAndStreams) {
  write(a_);
  read(b_);
  EXPECT_THAT(checker_.take_races(),
              ElementsAre(HasSubstr("read reads on stream b bytes that write writes on stream a")));
  EXPECT_THAT(checker_.take_races(), IsEmpty());
}

TEST_F(CheckerTest, AnEventOrdersTwoStreams) {
  write(a_);
  order(a_, b_);
  read(b_);
  order(b_, a_);
  write(a_);
  EXPECT_THAT(checker_.take_races(), IsEmpty());
}

TEST_F(CheckerTest, AnEventThatWasRecordedTooEarlyDoesNotOrder) {
  const Clock early = checker_.record(a_);
  write(a_);
  checker_.wait(b_, early);
  read(b_);
  EXPECT_THAT(checker_.take_races(), SizeIs(1));
}

TEST_F(CheckerTest, AWaitAfterTheUseDoesNotOrder) {
  write(a_);
  read(b_);
  order(a_, b_);
  EXPECT_THAT(checker_.take_races(), SizeIs(1));
}

TEST_F(CheckerTest, OrderIsTransitive) {
  write(a_);
  order(a_, b_);
  order(b_, c_);
  read(c_);
  EXPECT_THAT(checker_.take_races(), IsEmpty());
}

TEST_F(CheckerTest, AWriteAfterAReadNeedsAnEventAsWell) {
  read(a_);
  write(b_);
  EXPECT_THAT(checker_.take_races(), ElementsAre(HasSubstr("write writes on stream b")));
}

TEST_F(CheckerTest, ReadsDoNotConflict) {
  read(a_);
  read(b_);
  EXPECT_THAT(checker_.take_races(), IsEmpty());
}

// The write on stream a is covered by the read on stream b, but not by stream c's clock.
TEST_F(CheckerTest, ALaterReadDoesNotHideAnEarlierWrite) {
  write(a_);
  order(a_, b_);
  read(b_);
  read(c_);
  EXPECT_THAT(checker_.take_races(), ElementsAre(HasSubstr("write writes on stream a")));
}

TEST_F(CheckerTest, DisjointRangesDoNotConflict) {
  write(a_, 0, 0x200);
  write(b_, 0x200, 0x400);
  EXPECT_THAT(checker_.take_races(), IsEmpty());
  write(a_, 0x1ff, 0x201);
  EXPECT_THAT(checker_.take_races(), SizeIs(1));
}

TEST_F(CheckerTest, AnEmptyRangeDoesNotConflict) {
  write(a_);
  read(b_, 8, 8);
  EXPECT_THAT(checker_.take_races(), IsEmpty());
}

TEST_F(CheckerTest, AHostWaitOrdersAllLaterLaunches) {
  write(a_);
  const Clock reached = checker_.record(a_);
  EXPECT_FALSE(checker_.host_has_waited(reinterpret_cast<void*>(kBlock)));
  checker_.host_waited(reached);
  EXPECT_TRUE(checker_.host_has_waited(reinterpret_cast<void*>(kBlock)));
  write(b_);
  EXPECT_THAT(checker_.take_races(), IsEmpty());
}

TEST_F(CheckerTest, TheReleaseIsAWrite) {
  write(a_);
  order(a_, b_);
  read(b_);
  checker_.release_block(kBlock, a_);
  EXPECT_THAT(checker_.take_races(),
              ElementsAre(AllOf(HasSubstr("the release of the memory writes on stream a"),
                                HasSubstr("read reads on stream b"),
                                HasSubstr("record_stream"))));
}

TEST_F(CheckerTest, AReleaseAfterTheOtherStreamIsNoRace) {
  write(a_);
  order(a_, b_);
  read(b_);
  checker_.forget(kBlock, checker_.record(b_));
  checker_.release_block(kBlock, a_);
  EXPECT_THAT(checker_.take_races(), IsEmpty());
}

TEST_F(CheckerTest, AReusedBlockHasNoRacesOfItsEarlierUse) {
  write(a_);
  read(b_);
  checker_.release_block(kBlock, a_);
  EXPECT_THAT(checker_.take_races(), SizeIs(2));
  checker_.reuse_block(kBlock);
  write(a_);
  EXPECT_THAT(checker_.take_races(), IsEmpty());
  read(b_);
  EXPECT_THAT(checker_.take_races(), ElementsAre(HasSubstr("write writes on stream a")));
}

TEST_F(CheckerTest, AUseAfterTheReleaseIsReportedOnAnyStream) {
  checker_.release_block(kBlock, a_);
  write(a_);
  EXPECT_THAT(checker_.take_races(), ElementsAre(HasSubstr("memory that was released")));
}

TEST_F(CheckerTest, EqualReportsAppearOnce) {
  for (int i = 0; i < 10; ++i) {
    write(a_);
    write(b_);
  }
  EXPECT_THAT(checker_.take_races(), SizeIs(2)) << "b after a, and a after b";
}

TEST_F(CheckerTest, MemoryOutsideOfBlocksIsNotChecked) {
  const Access access{kBlock + kSize, kBlock + kSize + 8, true, "write"};
  checker_.launch(a_, {&access, 1});
  checker_.launch(b_, {&access, 1});
  EXPECT_THAT(checker_.take_races(), IsEmpty());
}

}  // namespace
}  // namespace sim
