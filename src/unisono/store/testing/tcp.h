#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/tcp_server.h"
#include "unisono/store/tcp_store.h"

namespace unisono::store::testing {

/// For a server on loopback that logs no warnings.
[[nodiscard]] TcpServerOptions quiet(const std::string& secret = "");

[[nodiscard]] TcpStoreOptions client_of(const net::Address& address,
                                        const std::string& secret = "");

/// What the Error says that `call` throws.
[[nodiscard]] std::string message_of(const std::function<void()>& call);

/// A server and its clients, without a secret and with one: the two ways in which they begin.
class ServedStore : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] std::unique_ptr<TcpStore> connect() const;

  std::unique_ptr<TcpStoreHost> host_ = std::make_unique<TcpStoreHost>(quiet(GetParam()));
};

/// A client that says what it likes.
class RawClient {
 public:
  explicit RawClient(const net::Address& address);

  void send(const std::vector<std::byte>& bytes);

  void send_validate();

  /// Waits until the server hangs up.
  [[nodiscard]] bool is_dropped();

  /// Whether the server has hung up by now.
  [[nodiscard]] bool has_ended() const;

 private:
  Fd fd_;
};

}  // namespace unisono::store::testing
