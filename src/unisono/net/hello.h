#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono::net {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

using Nonce = std::array<std::byte, kNonceBytes>;
using Proof = std::array<std::byte, kProofBytes>;

/// Returns unpredictable bytes. Throws Error(kSystem) if the system cannot provide them.
[[nodiscard]] Nonce make_nonce();

/// Returns the HMAC-SHA256 of `message`.
[[nodiscard]] Proof hmac_sha256(std::string_view secret, std::span<const std::byte> message);

/// Compares in constant time, so that the duration does not reveal the position of a difference.
[[nodiscard]] bool is_equal_secret(std::span<const std::byte> a, std::span<const std::byte> b);

/// Version of the protocol on all connections after the handshake. The version stays 1 until the
/// first release: until then all ranks of a job run the same build.
inline constexpr std::uint16_t kProtocolVersion = 1;

/// First byte of a handshake. No request of PyTorch's store begins with this byte.
inline constexpr std::byte kHelloByte{0xF5};

/// Identity that each side sends in the handshake.
struct HelloInfo {
  std::string job;      ///< Name of the job; at most kMaxJobBytes.
  std::string purpose;  ///< Purpose of the connection: "store", "data", "node", "messages".
  std::int32_t rank = -1;
  std::uint32_t group = 0;

  friend bool operator==(const HelloInfo&, const HelloInfo&) = default;
};

inline constexpr std::size_t kMaxJobBytes = 255;
inline constexpr std::size_t kMaxPurposeBytes = 31;

/// State machine for a side of the handshake that opens each connection: both sides exchange
/// identities and prove knowledge of the job's secret, which is not sent. Without I/O: the owner
/// passes received bytes in and sends the output bytes. docs/design/hello.md describes the format.
///
/// Not thread-safe. Protocol errors set state() to kFailed and error(). An empty secret is allowed,
/// but protects only from mistakes.
class Hello {
 public:
  /// Role in the handshake: the connecting side is the client.
  enum class Side { kClient, kServer };
  /// Progress of the handshake.
  enum class State { kRunning, kDone, kFailed };

  /// Throws Error(kInvalidArgument) if a text of `mine` is too long.
  Hello(Side side, std::string secret, HelloInfo mine);

  /// Consumes received bytes and returns their number. Bytes after the handshake remain with the
  /// caller.
  [[nodiscard]] std::size_t feed(std::span<const std::byte> bytes);

  /// Returns the number of bytes that the current step still needs. Reading exactly this number
  /// never reads past the handshake. 0 after the end.
  [[nodiscard]] std::size_t n_bytes_wanted() const;

  /// Returns the bytes to send now. Call this at the start and after each feed(), including after a
  /// failure: the output then contains the reason for the peer.
  [[nodiscard]] std::vector<std::byte> take_output();

  [[nodiscard]] State state() const { return state_; }

  /// Returns the peer's identity. Requires state kDone.
  [[nodiscard]] const HelloInfo& theirs() const;

  /// Returns the reason of a failure: kIncompatible, kUnauthenticated or kCorruptData. Requires
  /// state kFailed.
  [[nodiscard]] const Error& error() const;

 private:
  enum class Step { kPrefix, kBody, kProof, kOver };

  void take_prefix();
  void take_body();
  void take_proof();
  void expect(Step step, std::size_t n_bytes);
  void fail(ErrorCode code, const std::string& message);
  void send_greeting();
  void send_proof();
  [[nodiscard]] Proof proof_of(Side side) const;

  Side side_;
  std::string secret_;
  State state_ = State::kRunning;
  Step step_ = Step::kPrefix;
  std::size_t n_wanted_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  std::vector<std::byte> my_greeting_;
  std::vector<std::byte> their_greeting_;
  std::uint16_t their_version_ = 0;
  HelloInfo theirs_;
  std::optional<Error> error_;
};

/// Blocking I/O functions for a handshake. Both throw on failure.
struct HelloChannel {
  std::function<void(std::span<const std::byte>)> write;
  std::function<void(std::span<std::byte>)> read;  ///< Fills the whole span.
};

/// Performs the handshake as the connecting side; blocks until the end. Returns the peer's
/// identity.
///
/// Throws Error, with the peer's name: kIncompatible, kUnauthenticated, kCorruptData. Exceptions of
/// the channel pass through.
HelloInfo connect_hello(const HelloChannel& channel,
                        const std::string& secret,
                        const HelloInfo& mine,
                        const std::string& peer);

/// Performs the handshake as the connecting side over a socket. Errors contain the peer's address.
HelloInfo connect_hello(int fd,
                        const std::string& secret,
                        const HelloInfo& mine,
                        Deadline deadline);

/// Performs the handshake as the accepting side over a socket. Errors contain the peer's address.
HelloInfo accept_hello(int fd, const std::string& secret, const HelloInfo& mine, Deadline deadline);

}  // namespace unisono::net
