#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/tls_stream.h"

namespace unisono::store {

/// The client's end of a connection to a store: writes requests, reads the parts of replies.
///
/// Each member throws Error: kPeerLost, kTimeout, kCorruptData, and what ends a wait for a reply
/// where the program wants that (base/interruption.h). One thread may send while another
/// reads.
class StoreChannel {
 public:
  /// `peer` names the store in errors.
  StoreChannel(Fd fd, std::string peer);

  /// From here on all that is sent and read is within TLS.
  ///
  /// Throws Error(kUnauthenticated), too.
  void start_tls(const std::string& secret, Deadline deadline);

  void send(std::span<const std::byte> bytes, Deadline deadline);

  /// Waits for the next byte; false when the deadline passed before.
  [[nodiscard]] bool wait_for_reply(Deadline deadline);

  /// Fills `bytes`.
  void read(std::span<std::byte> bytes, Deadline deadline);

  /// From here on the server says why it refuses a request: kExplain was sent.
  void expect_reasons() { has_reasons_ = true; }

  /// To be called before a reply is read.
  ///
  /// Throws Refusal where there is none, or Error(kPeerLost) with the server's reason to end the
  /// connection.
  void begin_reply(Deadline deadline);

  /// After the connection has failed between requests: throws as begin_reply() does if the server
  /// has given a reason before.
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
  // Bytes [n_used_, n_filled_) were received and not yet asked for.
  std::vector<std::byte> buffer_;
  std::size_t n_used_ = 0;
  std::size_t n_filled_ = 0;
};

}  // namespace unisono::store
