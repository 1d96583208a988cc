// A connection between nodes whose peer writes what it likes.
//
// Input: u8 how many receives are posted (modulo 4), a u8 with the size of each, and the bytes that
// the peer writes before it hangs up.
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/tcp_stream.h"

#include "expect.h"
#include "input.h"
#include "operation_tag.h"
#include "sockets.h"

namespace unisono::fuzz {
namespace {

// A Unix socket's queue has room for it, with a frame of ours on the way back.
constexpr std::size_t kMaxWritten = 16384;

// True when all that was posted has come.
bool receive_all(tcp::Connection& connection) {
  try {
    while (connection.is_receiving() && connection.progress()) {
    }
  } catch (const Error& error) {
    expect(!std::string_view(error.what()).starts_with("internal error"), error.what());
    return false;
  }
  // The peer has hung up: a connection that waits nonetheless is one of a later operation's frame.
  expect(!connection.is_receiving() || !connection.can_receive(), "nothing is waited for in vain");
  return !connection.is_receiving();
}

void expect_payloads(const std::vector<std::vector<std::byte>>& payloads,
                     std::span<const std::byte> written) {
  for (const std::vector<std::byte>& payload : payloads) {
    expect(written.size() >= transport::kFrameBytes + payload.size(), "what came was written");
    expect(std::ranges::equal(written.subspan(transport::kFrameBytes, payload.size()), payload),
           "each payload lands in its own memory");
    written = written.subspan(transport::kFrameBytes + payload.size());
  }
}

void talk(Input input) {
  std::vector<std::vector<std::byte>> payloads(input.take_u8() % 4);
  for (std::vector<std::byte>& payload : payloads) {
    payload.resize(input.take_u8());
  }
  auto [ours, peer] = connected_sockets();
  tcp::Connection connection(1, "rank 1", 0, std::make_unique<tcp::TcpStream>(std::move(ours)));
  const std::span<const std::byte> written = input.take(kMaxWritten);
  const ssize_t n_written = ::send(peer.get(), written.data(), written.size(), MSG_NOSIGNAL);
  expect(n_written == static_cast<ssize_t>(written.size()), "the peer can write it all");
  expect(::shutdown(peer.get(), SHUT_WR) == 0, "the peer can hang up");

  connection.begin(operation_tag());
  connection.post_send(std::as_bytes(std::span("some of ours")));
  for (std::vector<std::byte>& payload : payloads) {
    connection.post_receive(payload);
  }
  if (receive_all(connection)) {
    expect_payloads(payloads, written);
  } else {
    connection.frames().abort(Error(ErrorCode::kPeerLost, "the input was bad"));
  }
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::talk(unisono::fuzz::Input(data, size));
  return 0;
}
