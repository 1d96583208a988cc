#include "unisono/net/multicast.h"

#include <sys/poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/io.h"

namespace unisono::net {
namespace {

using ::testing::HasSubstr;

// A group of this process alone, because other test runs may be active at the same time.
Address group(std::uint16_t port) {
  const std::string ip =
      "239.83." + std::to_string(::getpid() / 256 % 256) + "." + std::to_string(::getpid() % 256);
  return *Address::parse(ip, port);
}

std::vector<Interface> loopback() {
  std::vector<Interface> found = interfaces();
  std::erase_if(found, [](const Interface& interface) { return !interface.is_loopback; });
  return found;
}

std::optional<std::string> next_text(MulticastSocket& socket) {
  if (!wait_for(socket.fd(), POLLIN, Deadline::after(std::chrono::seconds(10)))) {
    return std::nullopt;
  }
  const std::optional<MulticastSocket::Packet> packet = socket.receive();
  if (!packet) {
    return std::nullopt;
  }
  EXPECT_TRUE(packet->from.is_loopback());
  EXPECT_EQ(packet->interface, loopback().front().index);
  return std::string(reinterpret_cast<const char*>(packet->bytes.data()), packet->bytes.size());
}

TEST(Multicast, EveryMemberOfTheGroupHearsWhatIsSent) {
  MulticastSocket anna(group(43117), loopback());
  MulticastSocket bert(group(43117), loopback());
  MulticastSocket other(group(43118), loopback());
  const std::string text = "hello";
  anna.send(std::as_bytes(std::span(text)));
  EXPECT_EQ(next_text(anna), text);
  EXPECT_EQ(next_text(bert), text);
  EXPECT_EQ(bert.receive().has_value(), false);
  EXPECT_EQ(other.receive().has_value(), false);
}

TEST(Multicast, WhereNoInterfaceServesTheGroupAMessageSaysWhatToDo) {
  EXPECT_THAT([] { MulticastSocket socket(group(43117), {}); },
              ::testing::ThrowsMessage<Error>(HasSubstr(
                  ":43117 is impossible here (no interface is up and has such an address); "
                  "give the group's interface a route or meet by tcp://HOST:PORT")));
  std::vector<Interface> unknown = loopback();
  unknown.front().name = "gone0";
  unknown.front().index = 1U << 20;
  EXPECT_THAT([&] { MulticastSocket socket(group(43117), {unknown.front()}); },
              ::testing::ThrowsMessage<Error>(HasSubstr("(gone0: No such device)")));
}

TEST(Multicast, OtherAddressesAreRefused) {
  EXPECT_THAT(
      [] { MulticastSocket socket(*Address::parse("10.0.0.1", 43117), loopback()); },
      ::testing::ThrowsMessage<Error>(HasSubstr("10.0.0.1:43117 is not a multicast address")));
  EXPECT_THAT([] { MulticastSocket socket(*Address::parse("ff02::1", 43117), loopback()); },
              ::testing::ThrowsMessage<Error>(HasSubstr("[ff02::1]:43117 is link-local")));
}

}  // namespace
}  // namespace unisono::net
