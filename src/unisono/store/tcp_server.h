#pragma once

#include <cstddef>
#include <memory>

#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_server_options.h"

namespace unisono::store {

/// A store that others reach by TCP, in PyTorch's protocol; ours say the hello first.
///
/// It works on the event loop of its owner, which must live as long, and is destroyed on that
/// loop's thread or when the loop does not run. With a secret only clients that say the hello are
/// served, but for options.plain_clients.
class TcpStoreServer {
 public:
  /// Listens from here on; serves when the loop runs.
  ///
  /// Throws Error: kSystem (the port is in use, ...), kInvalidArgument when it would serve other
  /// machines, or speak TLS, without a secret.
  TcpStoreServer(net::EventLoop& loop, const TcpServerOptions& options);

  ~TcpStoreServer();

  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  TcpStoreServer(TcpStoreServer&&) = delete;
  TcpStoreServer& operator=(TcpStoreServer&&) = delete;

  /// Where it listens, with the port that it got.
  [[nodiscard]] const net::Address& address() const;

  [[nodiscard]] std::size_t n_connections() const;

 private:
  class Impl;

  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::store
