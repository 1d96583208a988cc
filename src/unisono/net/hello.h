#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/proof.h"

namespace unisono::net {

/// Version of everything that our connections carry after the hello. It stays 1 until the first
/// release, whatever changes: until then all ranks of a job run one build.
inline constexpr std::uint16_t kProtocolVersion = 1;

/// First byte of a hello; no request of PyTorch's store begins with it.
inline constexpr std::byte kHelloByte{0xF5};

/// What one side says of itself.
struct HelloInfo {
  std::string job;      ///< Name of the job; at most kMaxJobBytes.
  std::string purpose;  ///< What the connection is for: "store", "data", "node", "messages".
  std::int32_t rank = -1;
  std::uint32_t group = 0;

  friend bool operator==(const HelloInfo&, const HelloInfo&) = default;
};

inline constexpr std::size_t kMaxJobBytes = 255;
inline constexpr std::size_t kMaxPurposeBytes = 31;

/// One side of the hello that opens each of our connections: both sides say who they are and prove
/// that they know the job's secret, without saying it. Bytes in, bytes out; docs/design/hello.md
/// has them.
///
/// An empty secret is allowed and protects from nothing but mistakes.
class Hello {
 public:
  enum class Side { kClient, kServer };
  enum class State { kRunning, kDone, kFailed };

  /// Throws Error(kInvalidArgument) when `mine` is over its limits.
  Hello(Side side, std::string secret, HelloInfo mine);

  /// Takes bytes of the other side, and returns how many: what follows the hello is the caller's.
  [[nodiscard]] std::size_t feed(std::span<const std::byte> bytes);

  /// How many bytes the next step lacks: reading exactly these never reads past the hello. 0 when
  /// it is over.
  [[nodiscard]] std::size_t n_bytes_wanted() const;

  /// What is to be sent now; to be asked for at the start and after each feed(), also after a
  /// failure: it tells the other side why.
  [[nodiscard]] std::vector<std::byte> take_output();

  [[nodiscard]] State state() const { return state_; }

  /// The other side's words, once the hello is done.
  [[nodiscard]] const HelloInfo& theirs() const;

  /// Why it failed: kIncompatible, kUnauthenticated or kCorruptData.
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

/// How a hello's bytes go and come, in blocking calls that throw.
struct HelloChannel {
  std::function<void(std::span<const std::byte>)> write;
  std::function<void(std::span<std::byte>)> read;  ///< Fills all of it.
};

/// Says the hello as the side that connected; blocks until it is done. Returns what the other side
/// said.
///
/// Throws Error, with the peer's name: kIncompatible, kUnauthenticated, kCorruptData, and what the
/// channel throws.
HelloInfo connect_hello(const HelloChannel& channel,
                        const std::string& secret,
                        const HelloInfo& mine,
                        const std::string& peer);

/// The same over a socket, whose peer's address is in errors.
HelloInfo connect_hello(int fd,
                        const std::string& secret,
                        const HelloInfo& mine,
                        Deadline deadline);

/// The same as the side that accepted.
HelloInfo accept_hello(int fd, const std::string& secret, const HelloInfo& mine, Deadline deadline);

}  // namespace unisono::net
