#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/tls.h"
#include "unisono/store/tcp_store.h"

namespace unisono::store {

/// The client's end of a connection to a store: writes requests, reads the parts of replies.
///
/// Each member throws Error: kPeerLost, kTimeout, kCorruptData, and what ends a wait for a reply
/// where the program wants that (base/thread.h). One thread may send while another
/// reads.
class StoreChannel {
 public:
  /// `peer` denotes the store in errors.
  StoreChannel(Fd fd, std::string peer);

  /// Starts TLS: all further data is sent and read within TLS.
  ///
  /// May also throw Error(kUnauthenticated).
  void start_tls(const std::string& secret, Deadline deadline);

  void send(std::span<const std::byte> bytes, Deadline deadline);

  /// Waits for the next byte. Returns false if the deadline passed before.
  [[nodiscard]] bool wait_for_reply(Deadline deadline);

  /// Blocks until `bytes` is full.
  void read(std::span<std::byte> bytes, Deadline deadline);

  /// Must be called after kExplain was sent: from now on replies begin with a ReplyKind.
  void expect_reasons() { has_reasons_ = true; }

  /// Must be called before a reply is read.
  ///
  /// Throws Refusal if the server refused the request, or ServerClosedError with the server's
  /// reason for ending the connection.
  void begin_reply(Deadline deadline);

  /// Called when the connection has failed between requests. Throws ServerClosedError if the server
  /// has sent a reason before, otherwise returns.
  void check_for_reason();

  [[nodiscard]] std::uint8_t read_u8(Deadline deadline);
  [[nodiscard]] std::uint32_t read_u32(Deadline deadline);
  [[nodiscard]] std::int64_t read_i64(Deadline deadline);
  [[nodiscard]] std::string read_string(Deadline deadline);

  [[nodiscard]] const std::string& peer() const { return peer_; }

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  template <class T>
  T read_number(Deadline deadline);
  void fill(Deadline deadline);

  Fd fd_;
  std::string peer_;
  bool has_reasons_ = false;
  std::unique_ptr<net::TlsStream> tls_;
  // Bytes [n_used_, n_filled_) were received but not read yet.
  std::vector<std::byte> buffer_;
  std::size_t n_used_ = 0;
  std::size_t n_filled_ = 0;
};

/// A connection on which a store's server has admitted this client.
struct Handshake {
  StoreChannel channel;
  bool is_plain;    ///< True if the server supports PyTorch's requests only.
  std::string job;  ///< The server's name of its job.
};

/// Connects to the server, retrying while no process listens there, and introduces this client:
/// with the mutual handshake if there is a secret, otherwise with VALIDATE like PyTorch's clients.
///
/// Throws the errors of TcpStore's constructor.
[[nodiscard]] Handshake shake_hands(const TcpStoreOptions& options, Deadline deadline);

}  // namespace unisono::store
