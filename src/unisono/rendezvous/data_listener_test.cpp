#include "unisono/rendezvous/data_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/port_range.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/connect_store.h"

namespace unisono::rendezvous {
namespace {

StoreSession session_from(const char* ip, const char* secret) {
  StoreSession session;
  session.local_ip = ip;
  session.secret = secret;
  return session;
}

TEST(DataListener, IsWhereTheStoreWasReachedFromAndInThePortsThatAreWanted) {
  Config config;
  const Fd anywhere = listen_for_data(config, session_from("::1", ""));
  EXPECT_EQ(net::local_address(anywhere.get()).ip(), "::1");
  config.ports = PortRange{.first = 23'100, .last = 23'999};
  const Fd in_range = listen_for_data(config, session_from("127.0.0.1", ""));
  const net::Address address = net::local_address(in_range.get());
  EXPECT_EQ(address.ip(), "127.0.0.1");
  EXPECT_GE(address.port(), 23'100);
  EXPECT_LE(address.port(), 23'999);
}

TEST(DataListener, WithoutASecretItStaysOnLoopback) {
  Config config;
  config.interface = "no such interface";
  const Fd fd = listen_for_data(config, session_from("127.0.0.1", ""));
  EXPECT_EQ(net::local_address(fd.get()).ip(), "127.0.0.1");
  EXPECT_THAT([&] { (void)listen_for_data(config, session_from("127.0.0.1", "secret")); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("there is no such interface")));
}

}  // namespace
}  // namespace unisono::rendezvous
