// Processes that watch a key receive its changes without polling.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/store/tcp_store.h"

#include "processes/spawn.h"

namespace unisono::test {
namespace {

using BytesByPort = std::map<std::uint16_t, std::uint64_t>;

std::optional<std::uint16_t> port_of(int fd, int (*name_of)(int, sockaddr*, socklen_t*)) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  if (name_of(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sin_family != AF_INET) {
    return std::nullopt;
  }
  return ntohs(address.sin_port);
}

// Returns the number of bytes that a server of this process, at `port`, has received from each
// client.
BytesByPort received(std::uint16_t port) {
  BytesByPort bytes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    const auto peer = port_of(fd, ::getpeername);
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (peer && port_of(fd, ::getsockname) == port &&
        ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      bytes[*peer] = info.tcpi_bytes_received;
    }
  }
  return bytes;
}

// The parameter is the secret; "" for no secret.
class WatchingProcesses : public ::testing::TestWithParam<const char*> {
 protected:
  std::size_t start(const std::string& key, int n_connections) {
    const std::size_t process = processes_.start({UNISONO_WATCH_PROGRAM,
                                                  std::to_string(host_.address().port()),
                                                  GetParam(),
                                                  key,
                                                  std::to_string(n_connections)});
    EXPECT_TRUE(processes_.wait_for_output(process, "watching\n"));
    return process;
  }

  // Expects that each of three connections in two processes receives the change of the value.
  void expect_told(const std::string& change) {
    EXPECT_TRUE(processes_.wait_for_output(0, "0: " + change));
    EXPECT_TRUE(processes_.wait_for_output(0, "1: " + change));
    EXPECT_TRUE(processes_.wait_for_output(1, "0: " + change));
  }

  store::TcpStoreHost host_{{.address = *net::Address::parse("127.0.0.1", 0),
                             .secret = GetParam(),
                             .logger = base::Logger("store", LogLevel::kError)}};
  store::TcpStore setter_{
      {.host = "127.0.0.1", .port = host_.address().port(), .secret = GetParam()},
      Deadline::after(std::chrono::seconds(30))};
  Processes processes_;
};

TEST_P(WatchingProcesses, AreToldOfTheirKeysChangesAndNeverAsk) {
  setter_.set("k", "first");
  ASSERT_EQ(setter_.num_keys(), 1);
  (void)start("k", 2);
  (void)start("k", 1);
  const std::size_t unrelated = start("other", 1);
  BytesByPort before = received(host_.address().port());
  // Each watching connection has a socket for requests and a socket for changes. The setter has one
  // more.
  EXPECT_EQ(before.size(), 9U);

  setter_.set("k", "second");
  expect_told("k was first is second\n");
  EXPECT_TRUE(setter_.delete_key("k"));
  expect_told("k was second is nothing\n");
  setter_.add("k", 3);
  expect_told("k was nothing is 3\n");
  // No change of another key came before this change.
  setter_.set("other", "its own");
  EXPECT_TRUE(processes_.wait_for_output(unrelated, "its own\n"));

  BytesByPort after = received(host_.address().port());
  const std::uint16_t setter = setter_.local_address().port();
  EXPECT_GT(after[setter], before[setter]);
  after.erase(setter);
  before.erase(setter);
  EXPECT_EQ(after, before) << "who watches has sent something";
  for (std::size_t process = 0; process <= unrelated; ++process) {
    processes_.close_stdin(process);
  }
  const auto results = processes_.finish();
  EXPECT_EQ(results[unrelated].out, "watching\n0: other was nothing is its own\n");
  EXPECT_EQ(results[1].out,
            "watching\n0: k was first is second\n0: k was second is nothing\n"
            "0: k was nothing is 3\n");
}

INSTANTIATE_TEST_SUITE_P(Secrets,
                         WatchingProcesses,
                         ::testing::Values("", "secret"),
                         [](const auto& secret) {
                           return std::string(*secret.param == '\0' ? "Plain" : "Hello");
                         });

}  // namespace
}  // namespace unisono::test
