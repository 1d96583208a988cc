#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/io.h"

namespace unisono::ucx {

/// The handshake of two UcxStreams on the socket: at the beginning the UCX addresses of both ends,
/// at the end the number of bytes that each end has written.
///
/// Owned and guarded by the UcxStream. No call blocks.
class SideChannel {
 public:
  explicit SideChannel(Fd socket) : socket_(std::move(socket)) {}

  /// Sets the UCX address of this end. Must be called first.
  void set_address(std::span<const std::byte> address);

  /// Sends the address and reads the peer's. kDone: both are complete. kError with EPROTO: the peer
  /// sent other data. Throws std::bad_alloc.
  [[nodiscard]] net::IoResult exchange_addresses();

  [[nodiscard]] bool is_greeting_sent() const noexcept { return greeting_.empty(); }

  /// Returns the peer's UCX address. Valid after exchange_addresses() returned kDone.
  [[nodiscard]] std::span<const std::byte> peers_address() const noexcept;

  /// Reads the data that the peer sent instead of an address.
  [[nodiscard]] net::IoResult read_plain(std::span<std::byte> bytes) noexcept;

  /// Ends the outgoing direction. `n_written` is the number of bytes that this end has written to
  /// UCX; given only after the addresses were exchanged.
  void end(std::optional<std::uint64_t> n_written) noexcept;

  /// Reads from the socket. Returns true if the peer's end has arrived with this call.
  [[nodiscard]] bool hear_end() noexcept;

  /// Number of bytes that the peer has written; std::nullopt until the peer has ended.
  [[nodiscard]] std::optional<std::uint64_t> n_peer_wrote() const noexcept { return n_peer_wrote_; }

  /// Returns true if the socket was closed or failed; see error_number().
  [[nodiscard]] bool is_peer_gone() const noexcept { return is_peer_gone_; }

  /// Returns true if the peer has ended cleanly or is gone.
  [[nodiscard]] bool has_ended() const noexcept { return n_peer_wrote_ || is_peer_gone_; }

  /// errno of the failure, or 0.
  [[nodiscard]] int error_number() const noexcept { return error_number_; }

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  [[nodiscard]] net::IoResult fill(std::size_t n_bytes);
  void note_end(const net::IoResult& result) noexcept;

  Fd socket_;
  std::vector<std::byte> greeting_;  // Bytes that are not sent yet.
  std::vector<std::byte> peers_greeting_;
  std::array<std::byte, sizeof(std::uint64_t)> word_{};
  std::size_t n_of_word_ = 0;
  std::optional<std::uint64_t> n_peer_wrote_;
  bool is_peer_gone_ = false;
  int error_number_ = 0;
};

}  // namespace unisono::ucx
