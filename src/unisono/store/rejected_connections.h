#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace unisono::store {

/// Who was turned away, in the order in which those who wait for a rank want to hear of it.
enum class ClientKind {
  kHello,  ///< Said the hello.
  kTls,    ///< Spoke TLS.
  kPlain,  ///< Spoke PyTorch's protocol: also a rank of ours that has no secret.
  kLeft,   ///< Began in one of these ways, and went by itself.
  kOther,  ///< Said something else or nothing: who scans ports, say.
};

/// The connections to which a server gave no entry, for those who wait for one of them.
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
