#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/store/store.h"

namespace unisono::store {

/// Clients without the handshake, i.e. PyTorch's, that a server with a secret serves nevertheless.
struct PlainClients {
  /// Clients on this machine that connect over loopback with a socket of this process's user.
  bool own_user = false;
  std::vector<net::Network> networks = {};  ///< Clients with an address in these networks.
};

/// Key under which a server publishes the rejected connections; see
/// TcpServerOptions::notes_turned_away.
inline constexpr const char* kTurnedAwayKey = "unisono/turned away";

/// Options of a store server. `limits` bounds keys, values and memory.
struct TcpServerOptions {
  net::Address address;  ///< Address to listen on; port 0 selects a free port.
  /// Clients must prove this secret. If empty, every client that can connect is served.
  std::string secret;
  /// Name of the job, sent to clients; at most net::kMaxJobBytes.
  std::string job = {};
  /// Clients that use the handshake must do so within TLS 1.3, with a key derived from the secret.
  bool tls = false;
  /// Allows addresses other than loopback without a secret.
  bool insecure = false;
  /// Clients that are served without the handshake, although the server has a secret.
  PlainClients plain_clients = {};
  Limits limits = {};
  /// Clients that are not admitted within this time are dropped.
  std::chrono::milliseconds admission_timeout = std::chrono::seconds(20);
  /// Publishes the number of rejected connections under kTurnedAwayKey, for each kind of client,
  /// with the address of the last connection and the reason. For clients that wait for a rank which
  /// was rejected.
  bool notes_turned_away = false;
  /// At most 100 warnings are logged in this period; a single line reports the number of the
  /// others.
  std::chrono::milliseconds log_period = std::chrono::minutes(1);
  /// Receives the warnings about rejected connections.
  base::Logger logger = base::Logger("store");
};

/// A TCP store server with a separate thread. See TcpStoreServer.
///
/// Owned by the process that hosts the store. The destructor closes all connections and joins the
/// thread. Member functions may be called by any thread except the server's.
class TcpStoreHost {
 public:
  /// Throws Error(kSystem), e.g. if the port is in use, and Error(kInvalidArgument) if the server
  /// would serve other machines, or use TLS, without a secret.
  explicit TcpStoreHost(const TcpServerOptions& options);

  ~TcpStoreHost();

  TcpStoreHost(const TcpStoreHost&) = delete;
  TcpStoreHost& operator=(const TcpStoreHost&) = delete;
  TcpStoreHost(TcpStoreHost&&) = delete;
  TcpStoreHost& operator=(TcpStoreHost&&) = delete;

  /// The address that the server listens on, with the actual port.
  [[nodiscard]] const net::Address& address() const;

  /// Waits until no client is connected, at most until `deadline`, so that clients can still
  /// receive pending replies.
  void wait_until_left(Deadline deadline);

 private:
  struct Impl;

  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::store
