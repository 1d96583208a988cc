#pragma once

#include <sys/socket.h>

#include <array>

#include "unisono/base/fd.h"

#include "expect.h"

namespace unisono::fuzz {

/// Returns the two ends of a connection. Data that an end writes, up to about 100 KiB, is queued
/// until the other end reads.
inline std::array<Fd, 2> connected_sockets() {
  std::array<int, 2> ends{};
  expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
         "a socketpair can be made");
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace unisono::fuzz
