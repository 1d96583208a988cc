#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

HelloInfo say(Hello::Side side,
              const HelloChannel& channel,
              const std::string& secret,
              const HelloInfo& mine,
              const std::string& peer) {
  Hello hello(side, secret, mine);
  std::vector<std::byte> input;
  for (;;) {
    channel.write(hello.take_output());
    if (hello.state() != Hello::State::kRunning) {
      break;
    }
    input.resize(hello.n_bytes_wanted());
    channel.read(input);
    [[maybe_unused]] const std::size_t n_taken = hello.feed(input);
  }
  if (hello.state() == Hello::State::kFailed) {
    throw Error(hello.error().code(), peer + ": " + hello.error().what());
  }
  return hello.theirs();
}

HelloInfo say(
    Hello::Side side, int fd, const std::string& secret, const HelloInfo& mine, Deadline deadline) {
  const std::string peer = "hello (" + mine.purpose + ") with " + describe_peer(fd);
  const HelloChannel channel{
      .write = [&](std::span<const std::byte> bytes) { write_all(fd, bytes, deadline, peer); },
      .read = [&](std::span<std::byte> bytes) { read_exact(fd, bytes, deadline, peer); }};
  return say(side, channel, secret, mine, peer);
}

}  // namespace

HelloInfo connect_hello(const HelloChannel& channel,
                        const std::string& secret,
                        const HelloInfo& mine,
                        const std::string& peer) {
  return say(Hello::Side::kClient, channel, secret, mine, peer);
}

HelloInfo connect_hello(int fd,
                        const std::string& secret,
                        const HelloInfo& mine,
                        Deadline deadline) {
  return say(Hello::Side::kClient, fd, secret, mine, deadline);
}

HelloInfo accept_hello(int fd,
                       const std::string& secret,
                       const HelloInfo& mine,
                       Deadline deadline) {
  return say(Hello::Side::kServer, fd, secret, mine, deadline);
}

}  // namespace unisono::net
