#include "unisono/transport/tcp/frame_stream.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/tcp/tcp_stream.h"

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

// More than the socket holds, so each call goes on where the last one ended.
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
    expect_error(ends.theirs, ErrorCode::kTimeout, "rank 0 gave up: too late");
    EXPECT_TRUE(ends.theirs.may_tell_abort());
  }
}

// Else the peer would take the words for payload.
TEST(FrameStream, SaysNothingInTheMiddleOfAFrame) {
  constexpr std::size_t kBytes = 1 << 20;
  Ends ends = connected(FrameKind::kData);
  const std::vector<std::byte> sent = pattern(kBytes);
  ASSERT_EQ(ends.ours.write(header_of(kBytes), sent).status, IoStatus::kWouldBlock);
  std::vector<std::byte> taken(kBytes);
  ASSERT_EQ(ends.theirs.read_header().status, IoStatus::kDone);
  // There is room again.
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
        expect_error(ends.theirs, ErrorCode::kCorruptData, "rank 0 sent bytes that are no frame");
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

}  // namespace
}  // namespace unisono::tcp
