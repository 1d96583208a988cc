#include "unisono/transport/ucx/ucx_stream.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/stream.h"

namespace unisono::ucx {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{20};

std::array<Fd, 2> connected_sockets() {
  std::array<int, 2> fds{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

std::vector<std::byte> make_bytes(std::size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::size_t i = 0; i < n_bytes; ++i) {
    bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13U);
  }
  return bytes;
}

void wait(transport::Stream& stream, bool reads, bool writes) {
  std::vector<pollfd> polls;
  stream.add_polls(polls, reads, writes);
  (void)::poll(polls.data(), polls.size(), 1000);
}

void write_all(transport::Stream& stream, std::span<const std::byte> bytes) {
  const Deadline deadline = Deadline::after(kPatience);
  while (!bytes.empty() && !deadline.has_passed()) {
    const std::size_t n_head = std::min<std::size_t>(bytes.size(), 56);
    const net::IoResult result = stream.write_some(bytes.first(n_head), bytes.subspan(n_head));
    ASSERT_NE(result.status, net::IoStatus::kError) << stream.describe(result.error_number);
    ASSERT_NE(result.status, net::IoStatus::kClosed);
    bytes = bytes.subspan(result.n_bytes);
    if (result.status == net::IoStatus::kWouldBlock) {
      wait(stream, false, true);
    }
  }
  ASSERT_TRUE(bytes.empty());
}

// All bytes until the end of the stream, and the kind of end.
struct IncomingFrame {
  std::vector<std::byte> bytes;
  net::IoResult end;
};

IncomingFrame read_all(transport::Stream& stream) {
  IncomingFrame heard;
  std::vector<std::byte> buffer(70'000);
  const Deadline deadline = Deadline::after(kPatience);
  while (!deadline.has_passed()) {
    heard.end = stream.read_some(buffer);
    if (heard.end.status == net::IoStatus::kWouldBlock) {
      wait(stream, true, false);
    } else if (heard.end.status != net::IoStatus::kDone) {
      return heard;
    }
    heard.bytes.insert(heard.bytes.end(),
                       buffer.begin(),
                       buffer.begin() + static_cast<std::ptrdiff_t>(heard.end.n_bytes));
  }
  return heard;
}

class UcxStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer doesn't see what orders libucp's accesses";
#endif
    // UCX's hooks in the memory functions conflict with LeakSanitizer.
    ::setenv("UCX_MEM_EVENTS", "no", 0);  // NOLINT(concurrency-mt-unsafe): no other thread yet.
    try {
      (void)prepare_streams();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(UcxStreamTest, CarriesBytesBothWaysUntilBothHaveEnded) {
  std::array<Fd, 2> sockets = connected_sockets();
  const std::vector<std::byte> small = make_bytes(57);
  const std::vector<std::byte> large = make_bytes(5'000'001);
  IncomingFrame at_other;
  std::thread other([&] {
    UcxStream stream(std::move(sockets[1]));
    write_all(stream, large);
    stream.end_writing();
    at_other = read_all(stream);
  });
  UcxStream stream(std::move(sockets[0]));
  write_all(stream, small);
  const IncomingFrame heard = read_all(stream);
  stream.end_writing();
  other.join();
  EXPECT_EQ(heard.end.status, net::IoStatus::kClosed);
  EXPECT_TRUE(heard.bytes == large);
  EXPECT_EQ(at_other.end.status, net::IoStatus::kClosed);
  EXPECT_TRUE(at_other.bytes == small);
}

TEST_F(UcxStreamTest, HandsOverWhatWasWrittenBeforeItIsDestroyed) {
  std::array<Fd, 2> sockets = connected_sockets();
  const std::vector<std::byte> bytes = make_bytes(300'000);
  UcxStream stays(std::move(sockets[0]));
  IncomingFrame heard;
  std::thread other([&] {
    UcxStream leaves(std::move(sockets[1]));
    write_all(leaves, bytes);
  });
  heard = read_all(stays);
  other.join();
  EXPECT_EQ(heard.end.status, net::IoStatus::kClosed);
  EXPECT_TRUE(heard.bytes == bytes);
}

// The reader has computed while its peer left.
TEST_F(UcxStreamTest, IsDestroyedOnceThePeersProcessHasWhatWasWritten) {
  std::array<Fd, 2> sockets = connected_sockets();
  const std::vector<std::byte> bytes = make_bytes(300'000);
  UcxStream stays(std::move(sockets[0]));
  std::thread other([&] {
    UcxStream leaves(std::move(sockets[1]));
    write_all(leaves, bytes);
  });
  other.join();
  std::vector<std::byte> heard(bytes.size() + 1);
  std::size_t n_heard = 0;
  net::IoResult result;
  while (result.status == net::IoStatus::kDone) {
    result = stays.read_some(std::span(heard).subspan(n_heard));
    n_heard += result.n_bytes;
  }
  EXPECT_EQ(result.status, net::IoStatus::kClosed);
  heard.resize(n_heard);
  EXPECT_TRUE(heard == bytes);
}

// Returns the number of polls until 8 bytes arrived.
int read_8(transport::Stream& stream) {
  int n_looks = 0;
  std::array<std::byte, 8> bytes{};
  net::IoResult result{.status = net::IoStatus::kWouldBlock};
  const Deadline deadline = Deadline::after(kPatience);
  while (result.status == net::IoStatus::kWouldBlock && !deadline.has_passed()) {
    result = stream.read_some(bytes);
    ++n_looks;
    if (result.status == net::IoStatus::kWouldBlock) {
      wait(stream, true, false);
    }
  }
  EXPECT_EQ(result.n_bytes, bytes.size());
  return n_looks;
}

// Measured after both sides have connected.
TEST_F(UcxStreamTest, SleepsUntilSomethingComes) {
  std::array<Fd, 2> sockets = connected_sockets();
  std::thread other([&] {
    UcxStream stream(std::move(sockets[1]));
    write_all(stream, make_bytes(8));
    (void)read_8(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    write_all(stream, make_bytes(8));
  });
  UcxStream stream(std::move(sockets[0]));
  (void)read_8(stream);
  write_all(stream, make_bytes(8));
  EXPECT_LT(read_8(stream), 100) << "it looked all the time";
  other.join();
}

TEST_F(UcxStreamTest, EndsWithThePeersProcess) {
  std::array<Fd, 2> sockets = connected_sockets();
  UcxStream stream(std::move(sockets[0]));
  sockets[1].reset();
  EXPECT_EQ(read_all(stream).end.status, net::IoStatus::kClosed);
}

TEST_F(UcxStreamTest, PassesOnWhatAPeerSaysThatDoesNotSpeakUcx) {
  std::array<Fd, 2> sockets = connected_sockets();
  UcxStream stream(std::move(sockets[0]));
  const std::vector<std::byte> abort =
      transport::encode_abort(0, Error(ErrorCode::kTimeout, "the reason"));
  ASSERT_EQ(net::write_some(sockets[1].get(), abort).n_bytes, abort.size());
  ASSERT_EQ(::shutdown(sockets[1].get(), SHUT_WR), 0);
  const IncomingFrame heard = read_all(stream);
  EXPECT_EQ(heard.end.status, net::IoStatus::kClosed);
  EXPECT_TRUE(heard.bytes == abort);
  const net::IoResult written = stream.write_some(abort, {});
  ASSERT_EQ(written.status, net::IoStatus::kError);
  EXPECT_THAT(stream.describe(written.error_number), HasSubstr("UNISONO_TRANSPORT"));
}

}  // namespace
}  // namespace unisono::ucx
