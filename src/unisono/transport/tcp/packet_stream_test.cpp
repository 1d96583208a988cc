#include "unisono/transport/tcp/packet_stream.h"

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/tcp/tcp_stream.h"

namespace unisono::tcp {
namespace {

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

// More than the socket holds, so both sides come back to it several times.
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
    expect_error(stays, ErrorCode::kTimeout, "rank 1 gave up: too late");
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
    expect_error(receiver, ErrorCode::kCorruptData, "rank 1 sent bytes that are no");
  };
  const auto frame_of = [](const transport::Frame& frame, std::size_t n_more) {
    const transport::FrameBytes header = transport::encode(frame);
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.resize(bytes.size() + n_more);
    return bytes;
  };
  expect_refused(std::vector<std::byte>(100, std::byte{7}));
  expect_refused(frame_of({.kind = transport::FrameKind::kData, .n_bytes = 8}, 8));
  // Shorter than its fields; with a label longer than it is; of no kind.
  expect_refused(frame_of({.kind = transport::FrameKind::kPacket, .n_bytes = 31}, 31));
  expect_refused(frame_of({.kind = transport::FrameKind::kPacket, .step = 20, .n_bytes = 40}, 40));
  expect_refused(
      frame_of({.kind = transport::FrameKind::kPacket, .step = 5000, .n_bytes = 6000}, 6000));
  expect_refused(frame_of({.kind = transport::FrameKind::kPacket, .n_bytes = 32}, 32));
}

}  // namespace
}  // namespace unisono::tcp
