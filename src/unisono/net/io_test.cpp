#include "unisono/net/io.h"

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"

namespace unisono::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

std::pair<Fd, Fd> socket_pair() {
  std::array<int, 2> fds{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

Deadline soon() {
  return Deadline::after(seconds(20));
}

TEST(Io, MoreThanTheSocketHoldsArrivesWhole) {
  auto [left, right] = socket_pair();
  std::vector<std::byte> sent(3'000'000);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  std::thread writer([&, fd = left.get()] { write_all(fd, sent, soon(), "right"); });
  std::vector<std::byte> received(sent.size());
  read_exact(right.get(), received, soon(), "left");
  writer.join();
  EXPECT_EQ(received, sent);
}

TEST(Io, AClosedConnectionSaysHowFarItCame) {
  auto [left, right] = socket_pair();
  write_all(left.get(), std::array<std::byte, 3>{}, soon(), "right");
  left.reset();
  std::array<std::byte, 8> bytes{};
  try {
    read_exact(right.get(), bytes, soon(), "rank 3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_STREQ(error.what(), "rank 3: closed the connection; 3 of 8 bytes received");
  }
  EXPECT_THROW((void)read_at_least_one(right.get(), bytes, soon(), "rank 3"), Error);
}

TEST(Io, WritingToAClosedConnectionThrowsAndRaisesNoSignal) {
  auto [left, right] = socket_pair();
  right.reset();
  try {
    write_all(left.get(), std::array<std::byte, 3>{}, soon(), "rank 3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error.what(), HasSubstr("Broken pipe (errno 32); 0 of 3 bytes sent"));
  }
}

TEST(Io, SilenceEndsAtTheDeadline) {
  auto [left, right] = socket_pair();
  std::array<std::byte, 4> bytes{};
  write_all(left.get(), std::span(bytes).first(1), soon(), "right");
  try {
    read_exact(right.get(), bytes, Deadline::after(milliseconds(5)), "rank 3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_STREQ(error.what(), "rank 3: timed out; 1 of 4 bytes received");
  }
  std::vector<std::byte> many(10'000'000);
  EXPECT_THROW(write_all(left.get(), many, Deadline::after(milliseconds(5)), "right"), Error);
}

TEST(Io, SomeReadsTellNothingNowFromTheEnd) {
  auto [left, right] = socket_pair();
  std::array<std::byte, 4> bytes{};
  EXPECT_EQ(read_some(right.get(), bytes).status, IoStatus::kWouldBlock);
  EXPECT_EQ(write_some(left.get(), std::span(bytes).first(2)).n_bytes, 2U);
  EXPECT_EQ(read_at_least_one(right.get(), bytes, soon(), "left"), 2U);
  left.reset();
  EXPECT_EQ(read_some(right.get(), bytes).status, IoStatus::kClosed);
  EXPECT_EQ(read_some(-1, bytes).status, IoStatus::kError);
}

class Reading : public ::testing::TestWithParam<bool> {
 protected:
  Reading() {
    if (GetParam()) {
      set_patient(right_.get());
    }
  }

  std::pair<Fd, Fd> ends_ = socket_pair();
  Fd& left_ = ends_.first;
  Fd& right_ = ends_.second;
  std::array<std::byte, 4> bytes_{};
};

TEST_P(Reading, TakesWhatComesSoonOrLate) {
  for (const milliseconds pause : {milliseconds(0), milliseconds(80)}) {
    const std::jthread writer([pause, fd = left_.get()] {
      std::this_thread::sleep_for(pause);
      write_all(fd, std::array<std::byte, 3>{}, soon(), "right");
    });
    EXPECT_EQ(read_by(right_.get(), bytes_, soon(), "left"), 3U);
  }
}

TEST_P(Reading, FindsNothingUntilTheDeadline) {
  for (const milliseconds time : {milliseconds(5), milliseconds(80)}) {
    const Deadline deadline = Deadline::after(time);
    EXPECT_EQ(read_by(right_.get(), bytes_, deadline, "left"), 0U);
    EXPECT_TRUE(deadline.has_passed());
  }
}

TEST_P(Reading, SaysHowTheConnectionEnded) {
  write_all(right_.get(), bytes_, soon(), "left");
  left_.reset();  // With unread bytes.
  EXPECT_THAT([&] { (void)read_by(right_.get(), bytes_, soon(), "rank 3"); },
              ::testing::ThrowsMessage<Error>(
                  HasSubstr("rank 3: connection lost: Connection reset by peer")));
  EXPECT_THAT([&] { (void)read_by(right_.get(), bytes_, soon(), "rank 3"); },
              ::testing::ThrowsMessage<Error>("rank 3: closed the connection"));
}

TEST_P(Reading, LeavesTheOtherCallsThatDoNotWaitAsTheyAre) {
  EXPECT_EQ(read_some(right_.get(), bytes_).status, IoStatus::kWouldBlock);
  const std::vector<std::byte> many(1'000'000);
  while (write_some(right_.get(), many).status == IoStatus::kDone) {
  }
  EXPECT_EQ(write_some(right_.get(), many, many).status, IoStatus::kWouldBlock);
}

INSTANTIATE_TEST_SUITE_P(Sockets, Reading, ::testing::Bool(), [](const auto& case_info) {
  return case_info.param ? "Patient" : "Nonblocking";
});

TEST(Io, TwoPartsGoOneBehindTheOther) {
  auto [left, right] = socket_pair();
  const std::array<std::byte, 3> first{std::byte{1}, std::byte{2}, std::byte{3}};
  const std::array<std::byte, 2> second{std::byte{4}, std::byte{5}};
  EXPECT_EQ(write_some(left.get(), first, second).n_bytes, 5U);
  EXPECT_EQ(write_some(left.get(), {}, second).n_bytes, 2U);
  std::vector<std::byte> received(7);
  read_exact(right.get(), received, soon(), "left");
  std::vector<int> values;
  for (const std::byte byte : received) {
    values.push_back(std::to_integer<int>(byte));
  }
  EXPECT_THAT(values, ::testing::ElementsAre(1, 2, 3, 4, 5, 4, 5));
  right.reset();
  EXPECT_EQ(write_some(left.get(), first, second).status, IoStatus::kError);
}

TEST(Io, WhatIsThereIsDiscardedEvenWhenTimeIsUp) {
  auto [left, right] = socket_pair();
  const std::vector<std::byte> many(50'000);
  write_all(left.get(), many, soon(), "right");
  discard_until_closed(right.get(), Deadline::after(milliseconds(0)));
  std::array<std::byte, 4> bytes{};
  EXPECT_EQ(read_some(right.get(), bytes).status, IoStatus::kWouldBlock);
}

TEST(Io, WhatComesIsDiscardedUntilTheOtherSideHangsUp) {
  auto [left, right] = socket_pair();
  const std::vector<std::byte> many(3'000'000);
  const std::jthread writer(
      [&, fd = std::move(left)] { write_all(fd.get(), many, soon(), "right"); });
  discard_until_closed(right.get(), Deadline::never());
  std::array<std::byte, 4> bytes{};
  EXPECT_EQ(read_some(right.get(), bytes).status, IoStatus::kClosed);
}

}  // namespace
}  // namespace unisono::net
