#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/tls.h"
#include "unisono/store/session.h"
#include "unisono/store/store_map.h"
#include "unisono/store/tcp_server.h"

namespace unisono::store {

/// Kinds of clients of rejected connections, ordered by relevance for the diagnosis of a missing
/// rank.
enum class ClientKind {
  kHello,  ///< Sent the beginning of Unisono's handshake.
  kTls,    ///< Sent the beginning of TLS.
  kPlain,  ///< Sent PyTorch's protocol. May be a rank of Unisono without a secret.
  kLeft,   ///< Sent the beginning of a known protocol, then closed the connection.
  kOther,  ///< Sent other bytes or no bytes, e.g. a port scanner.
};

/// Counts the connections that a server rejected, for the error messages of ranks that wait for a
/// missing rank. Owned by the server; not thread-safe.
class RejectedConnections {
 public:
  void add(ClientKind client, const std::string& peer, const std::string& reason);

  /// Describes each kind of client with rejected connections: "the store has turned away 2
  /// connections, the last from 10.0.0.3:4123: ...; a connection from 10.0.0.9:1: ...".
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

/// A connection of the server: the socket, TLS for clients that use TLS, and the session.
///
/// Owned by the server; belongs to the thread of the server's loop. No call blocks. problem()
/// returns the reason to close the connection.
class ServerConnection {
 public:
  ServerConnection(Fd socket, ClientId id, StoreMap& map, const TcpServerOptions& options);

  /// Processes bytes read from the socket. `buffer` is scratch memory for decrypted bytes.
  void receive(std::span<const std::byte> bytes, std::span<std::byte> buffer);

  /// Writes as much as the socket accepts. Returns false if the connection is lost.
  [[nodiscard]] bool flush();

  /// Returns true if unsent bytes remain.
  [[nodiscard]] bool has_more() const;

  /// Returns the reason for which the connection must be closed after flush(), or "".
  [[nodiscard]] const std::string& problem() const;

  /// Returns true once the client has sent any byte.
  [[nodiscard]] bool has_begun() const { return has_begun_; }

  /// Derived from the client's first byte; kOther before that.
  [[nodiscard]] ClientKind client_kind() const { return client_kind_; }

  [[nodiscard]] Session& session() { return session_; }

  [[nodiscard]] const Session& session() const { return session_; }

  [[nodiscard]] int fd() const { return fd_.get(); }

  /// The client's address, for messages.
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  void begin(std::byte first);
  void seal();

  const TcpServerOptions& options_;
  Fd fd_;
  std::string peer_;
  bool has_begun_ = false;
  ClientKind client_kind_ = ClientKind::kOther;
  std::string problem_;
  std::unique_ptr<net::Tls> tls_;
  std::vector<std::byte> sealed_;  // Encrypted by TLS. Replies that are not encrypted yet follow.
  Session session_;
};

}  // namespace unisono::store
