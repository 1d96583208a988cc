#include "unisono/net/socket_owner.h"

#include <sys/poll.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

// Listens on the first, connects to the second.
class SocketOwner : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(SocketOwner, IsFoundByBothEndsOfTheConnection) {
  const Deadline soon = Deadline::after(std::chrono::seconds(10));
  const Fd listener = listen_tcp(*Address::parse(GetParam().first, 0));
  const std::uint16_t port = local_address(listener.get()).port();
  const Fd client = connect_tcp(*Address::parse(GetParam().second, port), soon);
  ASSERT_TRUE(wait_for(listener.get(), POLLIN, soon));
  const Fd server = accept_connection(listener.get()).fd;
  // As the server sees them.
  const Address ours = local_address(server.get());
  const Address theirs = peer_address(server.get());
  EXPECT_EQ(find_socket_owner(theirs, ours), ::geteuid());
  EXPECT_EQ(find_socket_owner(theirs, *Address::parse(GetParam().second, 1)), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         SocketOwner,
                         ::testing::Values(std::pair("127.0.0.1", "127.0.0.1"),
                                           std::pair("::1", "::1"),
                                           std::pair("::", "127.0.0.1"),
                                           std::pair("::", "::1")));

TEST(SocketOwner, OfNoConnectionThereIsNone) {
  EXPECT_EQ(find_socket_owner(*Address::parse("127.0.0.1", 1), *Address::parse("127.0.0.1", 2)),
            std::nullopt);
}

}  // namespace
}  // namespace unisono::net
