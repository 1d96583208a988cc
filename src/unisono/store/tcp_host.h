#pragma once

#include <thread>

#include "unisono/base/deadline.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_server.h"

namespace unisono::store {

/// A TcpStoreServer in a thread of its own. Its end closes all connections.
class TcpStoreHost {
 public:
  /// Throws as TcpStoreServer does.
  explicit TcpStoreHost(const TcpServerOptions& options);

  ~TcpStoreHost();

  TcpStoreHost(const TcpStoreHost&) = delete;
  TcpStoreHost& operator=(const TcpStoreHost&) = delete;
  TcpStoreHost(TcpStoreHost&&) = delete;
  TcpStoreHost& operator=(TcpStoreHost&&) = delete;

  [[nodiscard]] const net::Address& address() const { return server_.address(); }

  /// Waits until no client is connected, at most until `deadline`: so that clients who still look
  /// for an answer get it.
  void wait_until_left(Deadline deadline);

 private:
  net::EventLoop loop_;
  TcpStoreServer server_;
  std::thread thread_;
};

}  // namespace unisono::store
