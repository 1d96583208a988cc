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

/// What the two ends of a UcxStream tell each other on their socket: at first how UCX reaches them,
/// at the end how many bytes they have written.
///
/// Never blocks.
class SideChannel {
 public:
  explicit SideChannel(Fd socket) : socket_(std::move(socket)) {}

  /// Before anything else: how UCX reaches this end.
  void set_address(std::span<const std::byte> address);

  /// Sends the address, and reads the peer's. kDone: both are through; kError with EPROTO: the peer
  /// says something else. Throws std::bad_alloc.
  [[nodiscard]] net::IoResult exchange_addresses();

  [[nodiscard]] bool is_greeting_sent() const noexcept { return greeting_.empty(); }

  /// The peer's address, behind kDone.
  [[nodiscard]] std::span<const std::byte> peers_address() const noexcept;

  /// What the peer says in place of an address.
  [[nodiscard]] net::IoResult read_plain(std::span<std::byte> bytes) noexcept;

  /// Ends this direction. `n_written`, behind the addresses: what this end has written to UCX.
  void end(std::optional<std::uint64_t> n_written) noexcept;

  /// Looks for the peer's end. True: it has come.
  [[nodiscard]] bool hear_end() noexcept;

  /// How many bytes the peer has written, once it has ended.
  [[nodiscard]] std::optional<std::uint64_t> n_peer_wrote() const noexcept { return n_peer_wrote_; }

  /// Its socket has ended, or failed with error_number().
  [[nodiscard]] bool is_peer_gone() const noexcept { return is_peer_gone_; }

  /// The one or the other.
  [[nodiscard]] bool has_ended() const noexcept { return n_peer_wrote_ || is_peer_gone_; }

  /// 0 for none.
  [[nodiscard]] int error_number() const noexcept { return error_number_; }

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  [[nodiscard]] net::IoResult fill(std::size_t n_bytes);
  void note_end(const net::IoResult& result) noexcept;

  Fd socket_;
  std::vector<std::byte> greeting_;  // Still to be sent.
  std::vector<std::byte> peers_greeting_;
  std::array<std::byte, sizeof(std::uint64_t)> word_{};
  std::size_t n_of_word_ = 0;
  std::optional<std::uint64_t> n_peer_wrote_;
  bool is_peer_gone_ = false;
  int error_number_ = 0;
};

}  // namespace unisono::ucx
