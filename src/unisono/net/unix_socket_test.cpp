#include "unisono/net/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline soon() {
  return Deadline::after(seconds(20));
}

std::string unique_name(const char* test) {
  return "unisono-test-" + std::to_string(::getpid()) + "-" + test;
}

struct Pair {
  explicit Pair(const char* test)
      : listener(listen_unix_abstract(unique_name(test))),
        client(connect_unix_abstract(unique_name(test), soon())),
        server(accept_connection(listener.get()).fd) {}

  Fd listener;
  Fd client;
  Fd server;
};

TEST(UnixSocket, TheKernelVouchesForThePeer) {
  const Pair pair("credentials");
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    const PeerCredentials peer = peer_credentials(fd);
    EXPECT_EQ(peer.uid, ::getuid());
    EXPECT_EQ(peer.pid, ::getpid());
    EXPECT_EQ(describe_peer(fd), "process " + std::to_string(::getpid()));
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(UnixSocket, APassedDescriptorIsTheSameFile) {
  const Pair pair("pass");
  const Fd memory(::memfd_create("passed", MFD_CLOEXEC));
  ASSERT_EQ(::write(memory.get(), "arena", 5), 5);
  send_fd(pair.client.get(), memory.get(), soon(), "server");
  const Fd received = receive_fd(pair.server.get(), soon(), "client");
  EXPECT_NE(received.get(), memory.get());
  EXPECT_NE(::fcntl(received.get(), F_GETFD) & FD_CLOEXEC, 0);
  std::array<char, 5> text{};
  ASSERT_EQ(::pread(received.get(), text.data(), text.size(), 0), 5);
  EXPECT_EQ(std::string(text.begin(), text.end()), "arena");
}

TEST(UnixSocket, DataWithoutADescriptorIsRefused) {
  const Pair pair("data");
  write_all(pair.client.get(), std::array<std::byte, 1>{}, soon(), "server");
  try {
    const Fd received = receive_fd(pair.server.get(), soon(), "rank 2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), ::testing::StartsWith("rank 2: sent data"));
  }
}

TEST(UnixSocket, SeveralDescriptorsAtOnceAreRefusedAndNotKept) {
  const Pair pair("several");
  const Fd memory(::memfd_create("passed", MFD_CLOEXEC));
  const std::array<int, 3> fds{memory.get(), memory.get(), memory.get()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(fds))> control{};
  char byte = 0;
  iovec vector{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof(fds));
  ASSERT_EQ(::sendmsg(pair.client.get(), &message, 0), 1);

  const int before = ::dup(memory.get());
  ::close(before);
  EXPECT_THROW((void)receive_fd(pair.server.get(), soon(), "client"), Error);
  const int after = ::dup(memory.get());
  ::close(after);
  EXPECT_EQ(after, before) << "a descriptor leaked";
}

TEST(UnixSocket, WaitsForADescriptorOnlyUntilTheDeadline) {
  Pair pair("wait");
  EXPECT_THROW((void)receive_fd(pair.server.get(), Deadline::after(milliseconds(5)), "client"),
               Error);
  pair.client.reset();
  try {
    const Fd received = receive_fd(pair.server.get(), soon(), "client");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
  }
}

TEST(UnixSocket, NamesThatAreTakenMissingOrTooLongAreExplained) {
  const Fd listener = listen_unix_abstract(unique_name("taken"));
  EXPECT_THROW((void)listen_unix_abstract(unique_name("taken")), Error);
  EXPECT_THROW((void)listen_unix_abstract(""), Error);
  EXPECT_THROW((void)listen_unix_abstract(std::string(108, 'x')), Error);
  EXPECT_TRUE(listen_unix_abstract(std::string(107, 'x')).is_open());
  try {
    (void)connect_unix_abstract(unique_name("missing"), soon());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(unique_name("missing")));
  }
}

}  // namespace
}  // namespace unisono::net
