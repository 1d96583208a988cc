// The connection for messages between nodes. The peer writes arbitrary bytes, as a whole and in
// parts.
//
// Input: u8 bytes per write, and the bytes that the peer writes before the peer closes the
// connection.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/remote/frame_stream.h"
#include "unisono/transport/stream.h"

#include "expect.h"
#include "input.h"
#include "packet_bytes.h"
#include "sockets.h"

namespace unisono::fuzz {
namespace {

// A Unix socket's queue has room for this size.
constexpr std::size_t kMaxWritten = 16384;

// The packets and the end that a side has read from its connection.
struct Outcome {
  std::vector<std::vector<std::byte>> packets;  // Packets encoded again by the sender.
  bool has_left = false;
  std::string problem;
};

// A rank that reads the bytes of its peer.
class Reader {
 public:
  explicit Reader(std::array<Fd, 2> sockets)
      : stream_("rank 1", 0, std::make_unique<tcp::TcpStream>(std::move(sockets[0]))),
        peer_(std::move(sockets[1])) {}

  Outcome read_all(std::span<const std::byte> written, std::size_t n_per_write) {
    try {
      while (!written.empty()) {
        const auto part = written.first(std::min(n_per_write, written.size()));
        expect(net::write_some(peer_.get(), part).n_bytes == part.size(), "the peer can write");
        take_packets();
        written = written.subspan(part.size());
      }
      expect(::shutdown(peer_.get(), SHUT_WR) == 0, "the peer can hang up");
      take_packets();
      expect(stream_.has_left(), "a peer that closes the connection has left, or is lost");
    } catch (const Error& error) {
      expect(!std::string_view(error.what()).starts_with("internal error"), error.what());
      outcome_.problem = error.what();
      stream_.frames().abort(error);
    }
    outcome_.has_left = stream_.has_left();
    return outcome_;
  }

 private:
  void take_packets() {
    while (const transport::Packet* const packet = stream_.peek()) {
      expect(transport::is_plausible(*packet), "a packet that is shown is plausible");
      payload_.resize(packet->n_bytes);
      const transport::Packet taken = *packet;
      const std::string label(stream_.label());
      if (!stream_.take(payload_)) {
        return;
      }
      outcome_.packets.push_back(packet_bytes(taken, label, payload_));
    }
  }

  tcp::PacketStream stream_;
  Fd peer_;
  std::vector<std::byte> payload_;  // Payload of the current packet.
  Outcome outcome_;
};

// Returns true if the byte at `at` of a packet has a meaning. Unused are the sequence number and
// the descriptor in the frame's header, and the fourth byte of the fields.
bool is_used(std::size_t at) {
  constexpr std::size_t kSequence = 12;
  constexpr std::size_t kPayloadBytes = 44;
  return at < kSequence || (at >= kPayloadBytes && at != transport::kFrameBytes + 3);
}

void expect_written(const Outcome& outcome, std::span<const std::byte> written) {
  for (const std::vector<std::byte>& packet : outcome.packets) {
    expect(packet.size() <= written.size(), "a packet holds nothing that did not come");
    for (std::size_t at = 0; at < packet.size(); ++at) {
      expect(packet[at] == written[at] || !is_used(at), "a packet is sent as it was read");
    }
    written = written.subspan(packet.size());
  }
}

void talk(Input input) {
  const std::size_t n_per_write = std::max<std::size_t>(1, input.take_u8());
  const std::span<const std::byte> written = input.take(kMaxWritten);
  const Outcome whole = Reader(connected_sockets()).read_all(written, kMaxWritten);
  const Outcome cut = Reader(connected_sockets()).read_all(written, n_per_write);
  expect_written(whole, written);
  expect(whole.packets == cut.packets, "cuts make no other packets");
  expect(whole.has_left == cut.has_left && whole.problem == cut.problem, "cuts make no other end");
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::talk(unisono::fuzz::Input(data, size));
  return 0;
}
