#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace unisono::store {

/// What kind of client a rejected connection came from. The first kinds say most to who waits for a
/// rank.
enum class ClientKind {
  kHello,  ///< Said the hello.
  kTls,    ///< Spoke TLS.
  kPlain,  ///< Spoke PyTorch's protocol: also a rank of ours that has no secret.
  kLeft,   ///< Began in one of these ways, and went by itself.
  kOther,  ///< Said something else or nothing: who scans ports, say.
};

/// Counts the connections that a server rejected, for the messages of who waits for a rank.
class RejectedConnections {
 public:
  void add(ClientKind client, const std::string& peer, const std::string& reason);

  /// What there is to say of each kind of client: "the store has turned away 2 connections, the
  /// last from 10.0.0.3:4123: ...; a connection from 10.0.0.9:1: ...".
  [[nodiscard]] std::string describe() const;

 private:
  struct Kind {
    std::size_t n_connections = 0;
    std::string last_peer;
    std::string last_reason;
  };

  static constexpr std::size_t kKinds = static_cast<std::size_t>(ClientKind::kOther) + 1;

  std::array<Kind, kKinds> kinds_;
};

}  // namespace unisono::store
