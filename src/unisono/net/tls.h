#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace unisono::net {

/// The first byte that a TLS client sends.
inline constexpr std::byte kTlsByte{0x16};

/// One side of a TLS 1.3 connection (RFC 8446), without I/O. There are no certificates: both sides
/// know a secret, from which they make a pre-shared key, and with a Diffie-Hellman exchange besides
/// it, so that who learns the secret later can't read what was recorded. One thread at a time.
class Tls {
 public:
  enum class Side : std::uint8_t { kClient, kServer };

  /// `who` is to speak TLS, for the message.
  ///
  /// Throws Error: kInvalidArgument when the secret is empty, kSystem when this system's OpenSSL
  /// has no TLS 1.3.
  static void check_usable(const std::string& secret, const std::string& who);

  /// Throws Error(kSystem) as check_usable() does.
  Tls(Side side, const std::string& secret);

  ~Tls();

  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  Tls(Tls&&) = delete;
  Tls& operator=(Tls&&) = delete;

  /// Takes what came from the network.
  void receive(std::span<const std::byte> bytes);

  /// Decrypts what has been received; 0 when there is nothing whole.
  [[nodiscard]] std::size_t read(std::span<std::byte> bytes);

  /// Encrypts, once it is_established().
  void write(std::span<const std::byte> bytes);

  /// What is to be sent now.
  [[nodiscard]] std::vector<std::byte> take_output();

  /// Both sides have proved that they know the secret.
  [[nodiscard]] bool is_established() const;

  /// Why nothing more can come or go, after the output is sent; empty while it can.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  struct Parts;

  void shake_hands();
  [[nodiscard]] bool is_good(int result);

  std::unique_ptr<Parts> parts_;
  std::string problem_;
};

}  // namespace unisono::net
