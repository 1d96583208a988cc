#pragma once

#include <cstddef>
#include <memory>

#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_store.h"

namespace unisono::store {

/// A store server for TCP clients that speak PyTorch's protocol; Unisono's clients first
/// authenticate with the mutual handshake. With a secret only clients that prove the secret are
/// served, except options.plain_clients.
///
/// Runs on the owner's event loop, which must outlive the server. Destroyed on the thread of that
/// loop, or while the loop does not run. Errors of clients end those connections and are logged.
class TcpStoreServer {
 public:
  /// Listens from now on; serves while the loop runs.
  ///
  /// Throws Error(kSystem), e.g. if the port is in use, and Error(kInvalidArgument) if the server
  /// would serve other machines, or use TLS, without a secret.
  TcpStoreServer(net::EventLoop& loop, const TcpServerOptions& options);

  ~TcpStoreServer();

  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  TcpStoreServer(TcpStoreServer&&) = delete;
  TcpStoreServer& operator=(TcpStoreServer&&) = delete;

  /// The address that the server listens on, with the actual port.
  [[nodiscard]] const net::Address& address() const;

  /// Returns the number of open connections, including unauthenticated connections.
  [[nodiscard]] std::size_t n_connections() const;

 private:
  class Impl;

  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::store
