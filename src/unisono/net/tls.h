#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"

namespace unisono::net {

/// The first byte that a TLS client sends.
inline constexpr std::byte kTlsByte{0x16};

/// A side of a TLS 1.3 connection (RFC 8446), without I/O: the owner passes received bytes in and
/// sends the output bytes.
///
/// The connection uses no certificates. Both sides derive a pre-shared key from a secret and
/// combine it with a Diffie-Hellman exchange, so that a later disclosure of the secret does not
/// expose recorded traffic.
///
/// Not thread-safe. After a failure problem() has the reason, and read() and write() have no
/// effect.
class Tls {
 public:
  enum class Side : std::uint8_t { kClient, kServer };

  /// Checks that TLS can be used. `who` names the TLS endpoint in the message.
  ///
  /// Throws Error: kInvalidArgument if the secret is empty, kSystem if this system's OpenSSL has no
  /// TLS 1.3.
  static void check_usable(const std::string& secret, const std::string& who);

  /// Throws Error(kSystem) if this system's OpenSSL has no TLS 1.3 or memory is exhausted.
  Tls(Side side, const std::string& secret);

  ~Tls();

  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  Tls(Tls&&) = delete;
  Tls& operator=(Tls&&) = delete;

  /// Passes bytes that were received from the network. Continues the handshake until it is
  /// complete.
  void receive(std::span<const std::byte> bytes);

  /// Decrypts received bytes and returns their number; 0 if no complete record is available.
  [[nodiscard]] std::size_t read(std::span<std::byte> bytes);

  /// Encrypts bytes. Requires is_established().
  void write(std::span<const std::byte> bytes);

  /// Returns the bytes to send now.
  [[nodiscard]] std::vector<std::byte> take_output();

  /// Returns true once both sides have proved knowledge of the secret.
  [[nodiscard]] bool is_established() const;

  /// Returns the reason why the connection has failed or ended; empty while it works. Pending
  /// output must still be sent.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  struct Parts;

  void shake_hands();
  [[nodiscard]] bool is_good(int result);

  std::unique_ptr<Parts> parts_;
  std::string problem_;
};

/// The client side of TLS over a socket, with blocking calls. Does not own the socket, which must
/// outlive this object.
///
/// One thread may write while another thread reads. Errors are thrown as Error.
class TlsStream {
 public:
  /// Performs the TLS handshake. `peer` names the other side in errors.
  ///
  /// Throws Error: kUnauthenticated, kPeerLost, kTimeout.
  TlsStream(int fd, const std::string& secret, Deadline deadline, const std::string& peer);

  /// Encrypts and writes all bytes. Throws the errors of net::write_all().
  void write_all(std::span<const std::byte> bytes, Deadline deadline, const std::string& peer);

  /// Waits for decrypted bytes. Returns their number, or 0 if the deadline has passed. Throws
  /// Error(kPeerLost).
  [[nodiscard]] std::size_t read_some(std::span<std::byte> bytes,
                                      Deadline deadline,
                                      const std::string& peer);

 private:
  [[nodiscard]] std::size_t decrypt(std::span<std::byte> bytes, const std::string& peer);

  int fd_;
  Mutex mutex_;
  Tls tls_ UNISONO_GUARDED_BY(mutex_);
  std::vector<std::byte> received_;  // Used by the reading thread only.
};

}  // namespace unisono::net
