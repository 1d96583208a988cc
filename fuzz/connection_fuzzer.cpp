// A connection between nodes with a peer that writes arbitrary bytes.
//
// Input: u8 number of posted receives (modulo 4), a u8 with the size of each receive, and the bytes
// that the peer writes before the peer closes the connection.
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
#include "unisono/transport/remote/connection.h"
#include "unisono/transport/stream.h"

#include "expect.h"
#include "input.h"
#include "operation_tag.h"
#include "sockets.h"

namespace unisono::fuzz {
namespace {

// A Unix socket's queue has room for this size, including a frame of ours in the other direction.
constexpr std::size_t kMaxWritten = 16384;

// Returns true if all posted receives have completed.
bool receive_all(tcp::Connection& connection) {
  try {
    while (connection.is_receiving() && connection.progress()) {
    }
  } catch (const Error& error) {
    expect(!std::string_view(error.what()).starts_with("internal error"), error.what());
    return false;
  }
  // The peer has closed the connection. A receive that is still pending is possible only if a later
  // operation's frame has come.
  expect(!connection.is_receiving() || !connection.can_receive(), "no wait lasts for ever");
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
