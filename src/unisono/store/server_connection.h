#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/tls.h"
#include "unisono/store/rejected_connections.h"
#include "unisono/store/session.h"
#include "unisono/store/store_map.h"
#include "unisono/store/tcp_server.h"

namespace unisono::store {

/// A connection of a server: the socket, TLS where the client speaks it, and the session.
class ServerConnection {
 public:
  ServerConnection(Fd socket, ClientId id, StoreMap& map, const TcpServerOptions& options);

  /// Takes what was read from the socket; `buffer` is for what TLS makes of it.
  void receive(std::span<const std::byte> bytes, std::span<std::byte> buffer);

  /// Writes what the socket takes. False when the connection is lost.
  [[nodiscard]] bool flush();

  /// There is more to write than the socket took.
  [[nodiscard]] bool has_more() const;

  /// Why the connection is to be closed, after flush(); empty while it may go on.
  [[nodiscard]] const std::string& problem() const;

  /// The client has said anything.
  [[nodiscard]] bool has_begun() const { return has_begun_; }

  /// By its first byte; kOther before that.
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
  std::vector<std::byte> sealed_;  // By TLS; replies that are not in it come behind.
  Session session_;
};

}  // namespace unisono::store
