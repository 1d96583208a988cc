#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

// A job of two ranks on this machine, for tests of how they meet.

inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

inline Config config_with(const std::string& secret = "") {
  Config config;
  config.secret = secret;
  config.stall = std::chrono::seconds(5);
  config.log_level = LogLevel::kError;
  return config;
}

inline LaunchInfo launch_info(int rank, std::uint16_t port) {
  return {.master_addr = "127.0.0.1", .master_port = port, .rank = rank, .world_size = 2};
}

/// A port that nobody else gets while this lives, and that a server can still listen on.
class ReservedPort {
 public:
  ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    const net::Address any = net::Address::loopback(0);
    EXPECT_EQ(::bind(fd_.get(), any.data(), any.size()), 0);
  }

  [[nodiscard]] std::uint16_t number() const { return net::local_address(fd_.get()).port(); }

 private:
  Fd fd_;
};

/// An address that other machines can reach; empty where there is none.
inline std::string outer_ip() {
  for (const net::Interface& interface : net::interfaces()) {
    for (const net::Address& address : interface.addresses) {
      if (!address.is_loopback() && address.family() == AF_INET) {
        return address.ip();
      }
    }
  }
  return "";
}

}  // namespace unisono::rendezvous
