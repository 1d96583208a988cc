// One side of a hello whose other side writes arbitrary bytes, and two honest sides with an
// attacker in the middle.
//
// Input: u8 mode (bit 0: the side under test is the server; bit 1: there is an attacker in the
// middle; bit 2: the other side has another secret), u8 bytes per feed. Then the other side's
// bytes, or the changes: u8 position of the byte (relative to the last change), u8 value to XOR
// into the byte.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/net/hello.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

using net::Hello;

const net::HelloInfo kClient{.job = "job", .purpose = "store", .rank = 1, .group = 0};
const net::HelloInfo kServer{.job = "job", .purpose = "store", .rank = 0, .group = 2};

struct Mode {
  Hello::Side side;
  bool has_middle;
  bool is_secret_shared;
  std::size_t n_per_feed;
};

Mode take_mode(Input& input) {
  const std::uint8_t bits = input.take_u8();
  const std::size_t n_per_feed = input.take_u8();
  return {.side = (bits & 1U) != 0 ? Hello::Side::kServer : Hello::Side::kClient,
          .has_middle = (bits & 2U) != 0,
          .is_secret_shared = (bits & 4U) == 0,
          .n_per_feed = std::max<std::size_t>(1, n_per_feed)};
}

// Returns the number of bytes that the hello has consumed.
std::size_t feed_in_parts(Hello& hello, std::span<const std::byte> bytes, std::size_t n_per_feed) {
  std::size_t n_taken = 0;
  while (n_taken < bytes.size() && hello.state() == Hello::State::kRunning) {
    const std::size_t n_wanted = hello.n_bytes_wanted();
    expect(n_wanted > 0, "a hello that runs wants bytes");
    const std::size_t n = std::min(n_per_feed, bytes.size() - n_taken);
    const std::size_t n_now = hello.feed(bytes.subspan(n_taken, n));
    expect(n_now <= n && n_now > 0, "a hello that runs takes bytes");
    n_taken += n_now;
  }
  return n_taken;
}

void hear_a_stranger(const Mode& mode, std::span<const std::byte> bytes) {
  Hello hello(mode.side, "secret", mode.side == Hello::Side::kServer ? kServer : kClient);
  Hello whole(mode.side, "secret", mode.side == Hello::Side::kServer ? kServer : kClient);
  const std::size_t n_taken = feed_in_parts(hello, bytes, mode.n_per_feed);
  expect(whole.feed(bytes) == n_taken && whole.state() == hello.state(),
         "how the bytes are cut makes no difference");
  expect(hello.state() != Hello::State::kDone, "a guessed proof is rejected");
  if (hello.state() == Hello::State::kFailed) {
    expect(hello.error().code() == whole.error().code(), "cuts make no other error");
    expect(hello.n_bytes_wanted() == 0, "a hello that failed wants nothing");
  }
  (void)hello.take_output();
}

// Changes bytes of both directions in transit.
class Middle {
 public:
  explicit Middle(Input input) : input_(input), n_until_change_(input_.take_u8()) {}

  std::vector<std::byte> pass(std::vector<std::byte> bytes) {
    for (std::byte& byte : bytes) {
      if (n_until_change_ > 0) {
        --n_until_change_;
      } else if (!input_.rest().empty()) {
        const auto change = static_cast<std::byte>(input_.take_u8());
        byte ^= change;
        has_changed_ = has_changed_ || change != std::byte{0};
        n_until_change_ = input_.take_u8();
      }
    }
    return bytes;
  }

  [[nodiscard]] bool has_changed() const { return has_changed_; }

 private:
  Input input_;
  std::size_t n_until_change_;
  bool has_changed_ = false;
};

void meet(const Mode& mode, Input input) {
  Hello client(Hello::Side::kClient, "secret", kClient);
  Hello server(Hello::Side::kServer, mode.is_secret_shared ? "secret" : "other", kServer);
  Middle middle(input);
  for (int turn = 0; turn < 4; ++turn) {
    const std::vector<std::byte> request = middle.pass(client.take_output());
    (void)feed_in_parts(server, request, mode.n_per_feed);
    const std::vector<std::byte> answer = middle.pass(server.take_output());
    (void)feed_in_parts(client, answer, mode.n_per_feed);
  }
  const bool is_client_done = client.state() == Hello::State::kDone;
  const bool is_server_done = server.state() == Hello::State::kDone;
  expect(!is_client_done || (client.theirs() == kServer && is_server_done),
         "a client that is done has received the server's own bytes");
  expect(!is_server_done || server.theirs() == kClient,
         "a server that is done has received the client's own bytes");
  expect(mode.is_secret_shared || (!is_client_done && !is_server_done),
         "without the secret no client is admitted");
  expect(!middle.has_changed() || !is_client_done, "a change is noticed");
  expect(middle.has_changed() || !mode.is_secret_shared || is_client_done,
         "honest sides come to an end");
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::Input input(data, size);
  const unisono::fuzz::Mode mode = unisono::fuzz::take_mode(input);
  if (mode.has_middle) {
    unisono::fuzz::meet(mode, input);
  } else {
    unisono::fuzz::hear_a_stranger(mode, input.rest());
  }
  return 0;
}
