#pragma once

#include <memory>

#include "unisono/base/deadline.h"
#include "unisono/net/address.h"
#include "unisono/store/tcp_server_options.h"

namespace unisono::store {

/// A store that others reach by TCP, served by a thread of its own, in PyTorch's protocol; ours say
/// the hello first. With a secret only clients that say it are served, but for
/// options.plain_clients. Its end closes all connections.
class TcpStoreHost {
 public:
  /// Throws Error: kSystem (the port is in use, ...), kInvalidArgument when it would serve other
  /// machines, or speak TLS, without a secret.
  explicit TcpStoreHost(const TcpServerOptions& options);

  ~TcpStoreHost();

  TcpStoreHost(const TcpStoreHost&) = delete;
  TcpStoreHost& operator=(const TcpStoreHost&) = delete;
  TcpStoreHost(TcpStoreHost&&) = delete;
  TcpStoreHost& operator=(TcpStoreHost&&) = delete;

  /// Where it listens, with the port that it got.
  [[nodiscard]] const net::Address& address() const;

  /// Waits until no client is connected, at most until `deadline`: so that clients who still look
  /// for an answer get it.
  void wait_until_left(Deadline deadline);

 private:
  struct Impl;

  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::store
