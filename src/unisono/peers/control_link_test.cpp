#include "unisono/peers/control_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/net/io.h"

namespace unisono::peers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A link, and the peer's socket.
class ControlLinkTest : public ::testing::Test {
 protected:
  ControlLinkTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    other_ = Fd(ends[1]);
    link_ = std::make_unique<ControlLink>(
        loop_,
        Fd(ends[0]),
        ControlLink::Callbacks{
            .frame =
                [this](const transport::Frame& frame, std::span<const std::byte> payload) {
                  heard_.push_back(transport::decode_abort(frame, payload).what());
                  return true;
                },
            .end =
                [this](ControlLink::End how) {
                  end_ = how;
                  link_.reset();
                }});
  }

  void write(std::span<const std::byte> bytes) const {
    net::write_all(other_.get(), bytes, Deadline::after(std::chrono::seconds(10)), "the link");
  }

  // Runs the loop while there are events.
  void run() {
    for (int i = 0; i < 20; ++i) {
      loop_.run_once(Deadline::after(std::chrono::milliseconds(1)));
    }
  }

  std::vector<std::byte> read_what_is_there() const {
    std::vector<std::byte> all;
    std::array<std::byte, 4096> buffer{};
    net::IoResult result = net::read_some(other_.get(), buffer);
    while (result.status == net::IoStatus::kDone) {
      all.insert(all.end(), buffer.begin(), buffer.begin() + result.n_bytes);
      result = net::read_some(other_.get(), buffer);
    }
    return all;
  }

  net::EventLoop loop_;
  Fd other_;
  std::unique_ptr<ControlLink> link_;
  std::vector<std::string> heard_;
  std::optional<ControlLink::End> end_;
};

std::vector<std::byte> news(const std::string& text) {
  return transport::encode_abort(7, Error(ErrorCode::kTimeout, text));
}

TEST_F(ControlLinkTest, HearsFramesHoweverTheirBytesCome) {
  for (const std::byte byte : news("one")) {
    write(std::span(&byte, 1));
    loop_.run_once(Deadline::after(std::chrono::seconds(1)));
  }
  std::vector<std::byte> two = news("two");
  const std::vector<std::byte> three = news("");
  two.insert(two.end(), three.begin(), three.end());
  write(two);
  run();
  EXPECT_THAT(heard_, ElementsAre("one", "two", ""));
  EXPECT_FALSE(end_);
}

TEST_F(ControlLinkTest, OfAPeerThatDiesInMidFrameHearsOnlyWholeFrames) {
  const std::vector<std::byte> whole = news("whole");
  write(whole);
  write(std::span(whole).first(whole.size() - 1));
  other_.reset();
  run();
  EXPECT_THAT(heard_, ElementsAre("whole"));
  EXPECT_EQ(end_, ControlLink::End::kClosed);
}

TEST_F(ControlLinkTest, EndsWithBytesThatAreNoFrame) {
  write(news("before"));
  write(std::vector<std::byte>(transport::kFrameBytes, std::byte{0x55}));
  run();
  EXPECT_THAT(heard_, ElementsAre("before"));
  EXPECT_EQ(end_, ControlLink::End::kJunk);
}

TEST_F(ControlLinkTest, EndsWithFramesOfOperationsWhateverTheirSize) {
  write(transport::encode({.kind = transport::FrameKind::kData, .n_bytes = 1ULL << 40U}));
  run();
  EXPECT_THAT(heard_, IsEmpty());
  EXPECT_EQ(end_, ControlLink::End::kJunk);
}

TEST_F(ControlLinkTest, KeepsWhatAStoppedPeerDoesNotTake) {
  const std::vector<std::byte> frame = news(std::string(4000, 'x'));
  const auto hold = std::make_shared<int>();
  constexpr std::size_t kFrames = 400;
  for (std::size_t i = 0; i < kFrames; ++i) {
    link_->send({.bytes = frame, .hold = hold});
  }
  EXPECT_GT(hold.use_count(), 2);
  EXPECT_LT(hold.use_count(), 400);
  std::vector<std::byte> all;
  while (all.size() < kFrames * frame.size()) {
    const std::vector<std::byte> some = read_what_is_there();
    ASSERT_FALSE(some.empty());
    all.insert(all.end(), some.begin(), some.end());
    run();
  }
  EXPECT_EQ(hold.use_count(), 1);
  ASSERT_EQ(all.size(), kFrames * frame.size());
  for (std::size_t i = 0; i < kFrames; ++i) {
    EXPECT_TRUE(std::equal(
        frame.begin(), frame.end(), all.begin() + static_cast<std::ptrdiff_t>(i * frame.size())));
  }
}

TEST_F(ControlLinkTest, OfAFloodToAStoppedPeerDropsTheRest) {
  const std::vector<std::byte> frame = news(std::string(4000, 'x'));
  const auto hold = std::make_shared<int>();
  for (int i = 0; i < 5000; ++i) {
    link_->send({.bytes = frame, .hold = hold});
  }
  EXPECT_LT(hold.use_count(), 1000);
  link_.reset();
  EXPECT_EQ(hold.use_count(), 1);
}

TEST_F(ControlLinkTest, ThatIsFloodedLeavesOthersTheirTurn) {
  const std::vector<std::byte> frame = news(std::string(4000, 'x'));
  while (net::write_some(other_.get(), frame).n_bytes == frame.size()) {
  }
  bool had_its_turn = false;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const Fd one(ends[0]);
  const Fd two(ends[1]);
  loop_.add(one.get(), EPOLLOUT, [&](std::uint32_t) {
    had_its_turn = true;
    loop_.remove(one.get());
  });
  loop_.run_once(Deadline::after(std::chrono::seconds(1)));
  EXPECT_TRUE(had_its_turn);
  const std::size_t n_first = heard_.size();
  EXPECT_GT(n_first, 0U);
  run();
  EXPECT_GT(heard_.size(), n_first);
}

TEST_F(ControlLinkTest, WhatAPeerSaidBeforeItsEndIsHeardAtOnce) {
  write(news("last words"));
  other_.reset();
  link_->read_all();
  EXPECT_THAT(heard_, ElementsAre("last words"));
  EXPECT_EQ(end_, ControlLink::End::kClosed);
}

}  // namespace
}  // namespace unisono::peers
