#include <cstddef>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

HelloInfo say(
    Hello::Side side, int fd, const std::string& secret, const HelloInfo& mine, Deadline deadline) {
  const std::string peer = "hello (" + mine.purpose + ") with " + describe_peer(fd);
  Hello hello(side, secret, mine);
  std::vector<std::byte> input;
  for (;;) {
    write_all(fd, hello.take_output(), deadline, peer);
    if (hello.state() != Hello::State::kRunning) {
      break;
    }
    input.resize(hello.n_bytes_wanted());
    read_exact(fd, input, deadline, peer);
    [[maybe_unused]] const std::size_t n_taken = hello.feed(input);
  }
  if (hello.state() == Hello::State::kFailed) {
    throw Error(hello.error().code(), peer + ": " + hello.error().what());
  }
  return hello.theirs();
}

}  // namespace

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
