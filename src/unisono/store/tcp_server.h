#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/network.h"
#include "unisono/store/limits.h"

namespace unisono::store {

/// Clients that a server with a secret serves without the hello: PyTorch's.
struct PlainClients {
  /// Those of this machine, if they come over loopback and their socket belongs to this process's
  /// user.
  bool own_user = false;
  std::vector<net::Network> networks = {};  ///< Those with an address in one of them.
};

/// Where a server says which clients it has turned away; see TcpServerOptions.
inline constexpr const char* kTurnedAwayKey = "unisono/turned away";

struct TcpServerOptions {
  net::Address address;  ///< Where to listen; port 0 takes a free one.
  std::string secret;    ///< Clients prove that they know it. Empty: anybody who can connect.
  /// Name of the job that it serves, told to its clients; at most net::kMaxJobBytes.
  std::string job = {};
  /// Clients that say the hello do so within TLS 1.3, whose key is made from the secret.
  bool tls = false;
  /// Allows an address other than loopback without a secret.
  bool insecure = false;
  PlainClients plain_clients = {};
  Limits limits = {};
  /// A client that has not been let in by then is dropped.
  std::chrono::milliseconds admission_timeout = std::chrono::seconds(20);
  /// Keeps how many connections it has not let in, with the last one's address and the reason, for
  /// each kind of client, under kTurnedAwayKey: for the clients that wait for one of them.
  bool notes_turned_away = false;
  /// Of more than 100 warnings in this time the rest is counted, and said in one line.
  std::chrono::milliseconds log_period = std::chrono::minutes(1);
  Logger logger = Logger("store");
};

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
