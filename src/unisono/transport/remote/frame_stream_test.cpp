#include "unisono/transport/remote/frame_stream.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/fd.h"

namespace unisono::tcp {
namespace {

using net::IoStatus;
using transport::FrameKind;

constexpr std::uint32_t kGroup = 5;

struct Ends {
  FrameStream ours;
  FrameStream theirs;
};

Ends connected(FrameKind kind) {
  std::array<int, 2> fds{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
  return {.ours = FrameStream("rank 1", kGroup, kind, std::make_unique<TcpStream>(Fd(fds[0]))),
          .theirs = FrameStream("rank 0", kGroup, kind, std::make_unique<TcpStream>(Fd(fds[1])))};
}

std::vector<std::byte> pattern(std::size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::size_t i = 0; i < n_bytes; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7);
  }
  return bytes;
}

transport::FrameBytes header_of(std::size_t n_bytes) {
  return transport::encode({.kind = FrameKind::kData, .n_bytes = n_bytes});
}

void expect_error(FrameStream& stream, ErrorCode code, const std::string& text) {
  try {
    (void)stream.read_header();
    ADD_FAILURE() << "no error: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_EQ(error.what(), text);
  }
}

// More data than the socket holds, so each call continues at the end of the previous call.
TEST(FrameStream, CarriesFramesInPieces) {
  constexpr std::size_t kBytes = 1 << 20;
  constexpr std::size_t kFirstPart = 1000;
  Ends ends = connected(FrameKind::kData);
  const std::vector<std::byte> sent = pattern(kBytes);
  const transport::FrameBytes header = header_of(kBytes);
  std::vector<std::byte> taken(kBytes);
  std::size_t n_written = 0;
  std::size_t n_read = 0;
  bool is_written = false;
  std::size_t n_parts = 0;
  for (int n_looks = 0; n_parts < 3; ++n_looks) {
    ASSERT_LT(n_looks, 10'000);
    if (!is_written) {
      const net::IoResult written = ends.ours.write(header, sent);
      is_written = written.status == IoStatus::kDone;
      n_written += written.n_bytes;
      EXPECT_EQ(ends.ours.n_written(), is_written ? 0 : n_written);
    }
    const std::span<std::byte> payload(taken);
    const net::IoResult read = n_parts == 0   ? ends.theirs.read_header()
                               : n_parts == 1 ? ends.theirs.read(payload.first(kFirstPart))
                                              : ends.theirs.read(payload.subspan(kFirstPart));
    n_read += read.n_bytes;
    n_parts += read.status == IoStatus::kDone ? 1 : 0;
  }
  EXPECT_EQ(n_written, transport::kFrameBytes + kBytes);
  EXPECT_EQ(n_read, transport::kFrameBytes + kBytes);
  EXPECT_EQ(taken, sent);
  ASSERT_NE(ends.theirs.frame(), nullptr);
  ends.theirs.finish_frame();
  EXPECT_EQ(ends.theirs.read_header().status, IoStatus::kWouldBlock);
}

TEST(FrameStream, RepeatsWhyThePeerGaveUp) {
  Ends ends = connected(FrameKind::kData);
  ends.ours.abort(Error(ErrorCode::kTimeout, "too late"));
  for (int n = 0; n < 2; ++n) {
    expect_error(ends.theirs, ErrorCode::kTimeout, "rank 0 aborted: too late");
    EXPECT_TRUE(ends.theirs.may_tell_abort());
  }
}

// Otherwise the peer would treat the frame as payload.
TEST(FrameStream, SaysNothingInTheMiddleOfAFrame) {
  constexpr std::size_t kBytes = 1 << 20;
  Ends ends = connected(FrameKind::kData);
  const std::vector<std::byte> sent = pattern(kBytes);
  ASSERT_EQ(ends.ours.write(header_of(kBytes), sent).status, IoStatus::kWouldBlock);
  std::vector<std::byte> taken(kBytes);
  ASSERT_EQ(ends.theirs.read_header().status, IoStatus::kDone);
  // Makes room in the socket.
  ASSERT_EQ(ends.theirs.read(taken).status, IoStatus::kWouldBlock);
  const std::size_t n_before = ends.theirs.n_read();
  ends.ours.say_goodbye();
  ends.ours.abort(Error(ErrorCode::kTimeout, "too late"));
  EXPECT_EQ(ends.theirs.read(taken).status, IoStatus::kClosed);
  EXPECT_EQ(ends.theirs.n_read(), n_before);
}

TEST(FrameStream, LetsNoFrameThroughThatIsForOthers) {
  for (const FrameKind kind : {FrameKind::kData, FrameKind::kPacket}) {
    for (const FrameKind sent :
         {FrameKind::kData, FrameKind::kLeave, FrameKind::kPacket, FrameKind::kAsk}) {
      Ends ends = connected(kind);
      const transport::FrameBytes header = transport::encode({.kind = sent});
      ASSERT_EQ(ends.ours.write(header, {}).status, IoStatus::kDone);
      if (sent == kind || sent == FrameKind::kLeave) {
        EXPECT_EQ(ends.theirs.read_header().status, IoStatus::kDone);
        EXPECT_EQ(ends.theirs.frame()->kind, sent);
      } else {
        expect_error(ends.theirs, ErrorCode::kCorruptData, "rank 0 sent an invalid frame");
      }
    }
  }
}

TEST(FrameStream, SaysHowItEnded) {
  Ends ends = connected(FrameKind::kData);
  EXPECT_STREQ(ends.ours.lost({.status = IoStatus::kClosed}, "before its time").what(),
               "rank 1 closed the connection before its time");
  EXPECT_THAT(ends.ours.lost(FrameStream::kUnanswered, "").what(),
              ::testing::MatchesRegex("rank 1 at .* is gone: Connection timed out"));
}

using transport::Packet;
using transport::PacketKind;

std::array<Fd, 2> connected() {
  std::array<int, 2> fds{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

Packet message_of(std::size_t n_bytes) {
  return {.kind = PacketKind::kMessage,
          .dtype = DType::kUInt8,
          .tag = 9,
          .n_bytes = static_cast<std::uint32_t>(n_bytes),
          .count = static_cast<std::int64_t>(n_bytes)};
}

void expect_error(PacketStream& stream, ErrorCode code, const std::string& text) {
  try {
    (void)stream.peek();
    ADD_FAILURE() << "no error: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

// More data than the socket holds, so both sides need several calls.
TEST(PacketStream, CarriesPacketsInPieces) {
  auto [a, b] = connected();
  PacketStream sender("rank 1", 0, std::make_unique<TcpStream>(std::move(a)));
  PacketStream receiver("rank 0", 0, std::make_unique<TcpStream>(std::move(b)));
  constexpr std::size_t kBytes = 1 << 20;
  std::vector<std::byte> sent(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    sent[i] = static_cast<std::byte>(i * 13);
  }
  const Packet packet{
      .kind = PacketKind::kData, .number = 4, .n_bytes = static_cast<std::uint32_t>(kBytes)};
  std::vector<std::byte> taken(kBytes);
  bool is_sent = false;
  bool is_taken = false;
  int n_looks = 0;
  while (!is_taken) {
    ASSERT_LT(++n_looks, 10'000);
    is_sent = is_sent || sender.send(packet, "", sent);
    EXPECT_EQ(sender.is_blocked(), !is_sent);
    const Packet* const arrived = receiver.peek();
    if (arrived != nullptr) {
      EXPECT_EQ(arrived->number, 4U);
      is_taken = receiver.take(taken);
    }
  }
  EXPECT_GT(n_looks, 1);
  EXPECT_EQ(taken, sent);
}

TEST(PacketStream, CarriesLabelsAndNothingAtAll) {
  auto [a, b] = connected();
  PacketStream sender("rank 1", 0, std::make_unique<TcpStream>(std::move(a)));
  PacketStream receiver("rank 0", 0, std::make_unique<TcpStream>(std::move(b)));
  ASSERT_TRUE(sender.send(message_of(0), "weights", {}));
  ASSERT_TRUE(sender.send(message_of(0), std::string(500, 'x'), {}));
  ASSERT_NE(receiver.peek(), nullptr);
  EXPECT_EQ(receiver.label(), "weights");
  EXPECT_EQ(receiver.peek()->tag, 9);
  EXPECT_TRUE(receiver.take({}));
  ASSERT_NE(receiver.peek(), nullptr);
  EXPECT_EQ(receiver.label(), std::string(transport::kMaxLabelBytes, 'x'));
  EXPECT_TRUE(receiver.take({}));
  EXPECT_EQ(receiver.peek(), nullptr);
}

TEST(PacketStream, SaysHowTheOtherSideEnded) {
  {
    auto [a, b] = connected();
    PacketStream left("rank 1", 0, std::make_unique<TcpStream>(std::move(a)));
    PacketStream stays("rank 1", 0, std::make_unique<TcpStream>(std::move(b)));
    left.frames().say_goodbye();
    EXPECT_EQ(stays.peek(), nullptr);
    EXPECT_TRUE(stays.has_left());
    EXPECT_FALSE(stays.send(message_of(0), "", {}));
  }
  {
    auto [a, b] = connected();
    PacketStream failed("rank 1", 0, std::make_unique<TcpStream>(std::move(a)));
    PacketStream stays("rank 1", 0, std::make_unique<TcpStream>(std::move(b)));
    failed.frames().abort(Error(ErrorCode::kTimeout, "too late"));
    expect_error(stays, ErrorCode::kTimeout, "rank 1 aborted: too late");
  }
  {
    auto [a, b] = connected();
    PacketStream stays("rank 1", 0, std::make_unique<TcpStream>(std::move(b)));
    a.reset();
    expect_error(stays, ErrorCode::kPeerLost, "rank 1 closed the connection");
  }
}

TEST(PacketStream, RefusesWhatIsNoPacket) {
  const auto expect_refused = [](const std::vector<std::byte>& bytes) {
    auto [a, b] = connected();
    PacketStream receiver("rank 1", 0, std::make_unique<TcpStream>(std::move(b)));
    ASSERT_EQ(net::write_some(a.get(), bytes).n_bytes, bytes.size());
    expect_error(receiver, ErrorCode::kCorruptData, "rank 1 sent an invalid");
  };
  const auto frame_of = [](const transport::Frame& frame, std::size_t n_more) {
    const transport::FrameBytes header = transport::encode(frame);
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.resize(bytes.size() + n_more);
    return bytes;
  };
  expect_refused(std::vector<std::byte>(100, std::byte{7}));
  expect_refused(frame_of({.kind = transport::FrameKind::kData, .n_bytes = 8}, 8));
  // A frame that is shorter than its fields; a frame with a label longer than the frame; a frame of
  // no valid kind.
  expect_refused(frame_of({.kind = transport::FrameKind::kPacket, .n_bytes = 31}, 31));
  expect_refused(frame_of({.kind = transport::FrameKind::kPacket, .step = 20, .n_bytes = 40}, 40));
  expect_refused(
      frame_of({.kind = transport::FrameKind::kPacket, .step = 5000, .n_bytes = 6000}, 6000));
  expect_refused(frame_of({.kind = transport::FrameKind::kPacket, .n_bytes = 32}, 32));
}

}  // namespace
}  // namespace unisono::tcp
