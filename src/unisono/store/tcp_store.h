#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/store/store.h"

namespace unisono::store {

class StoreConnection;
class TimedMutex;
class WatchConnection;

/// Options of a TcpStore. `port` is the server's port, and `limits` bounds the sizes of keys and
/// values.
struct TcpStoreOptions {
  std::string host;  ///< Name or numeric address.
  std::uint16_t port = 0;
  /// Secret for mutual authentication. If empty, the server may be PyTorch's or Unisono's.
  std::string secret;
  bool tls = false;        ///< Uses TLS 1.3 with a key derived from the secret.
  std::int32_t rank = -1;  ///< Rank of this client, sent to the server.
  /// Defines whether a refused connection is retried because the server may still start, or is an
  /// error.
  net::IfRefused if_refused = net::IfRefused::kTryAgain;
  /// Limit of waits that no deadline of the caller covers: sending a request, and a reply that is
  /// due at once.
  std::chrono::milliseconds io_timeout = std::chrono::seconds(30);
  Limits limits = {};
};

/// The client of a TcpStoreServer or of PyTorch's TCPStore server.
///
/// Thread-safe: one request at a time, so a call also waits, within the deadline, for the preceding
/// request. Threads with long waits should have separate clients. Errors: see Store and the
/// constructor.
class TcpStore final : public Store {
 public:
  /// Connects to the server, retrying while no process listens there.
  ///
  /// Throws Error(kTimeout) with the address and the last reason; ServerUnresponsiveError if a
  /// process accepts connections there but does not reply; Error(kUnauthenticated),
  /// Error(kIncompatible); Error(kPeerLost) if the server closes the connection because it is not a
  /// store of this job, and at once if no process listens and options.if_refused does not allow
  /// retries.
  TcpStore(const TcpStoreOptions& options, Deadline deadline);

  ~TcpStore() override;

  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;
  TcpStore(TcpStore&&) = delete;
  TcpStore& operator=(TcpStore&&) = delete;

  void set(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string get(const std::string& key, Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> try_get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  void append(const std::string& key, const std::string& value) override;
  [[nodiscard]] bool check(std::span<const std::string> keys) override;
  void wait(std::span<const std::string> keys, Deadline deadline) override;
  std::string compare_set(const std::string& key,
                          const std::string& expected,
                          const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  [[nodiscard]] std::int64_t num_keys() override;
  [[nodiscard]] std::vector<std::string> list_keys() override;
  [[nodiscard]] std::vector<std::string> multi_get(std::span<const std::string> keys,
                                                   Deadline deadline) override;
  void multi_set(std::span<const KeyValue> pairs) override;
  void queue_push(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string queue_pop(const std::string& key, Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> try_queue_pop(const std::string& key) override;
  [[nodiscard]] std::int64_t queue_len(const std::string& key) override;
  void barrier(const std::string& key, std::int64_t world_size, Deadline deadline) override;
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key,
                                             WatchCallback on_change) override;
  void set_at_end(const std::string& key, const std::string& value) override;

  /// The server's name of its job. Empty if there is no name, as on PyTorch's servers.
  [[nodiscard]] const std::string& job() const;

  /// The connection's socket, to be polled for its end; must not be read.
  [[nodiscard]] int fd() const;

  /// The address of this side of the connection, which the store's host can reach.
  [[nodiscard]] net::Address local_address() const;

 private:
  [[noreturn]] void throw_missing(const char* call,
                                  std::span<const std::string> keys,
                                  Deadline::Clock::time_point start);

  TcpStoreOptions options_;
  std::unique_ptr<StoreConnection> connection_;
  std::unique_ptr<TimedMutex> watch_mutex_;
  // Created by the first watch. Guarded by watch_mutex_.
  std::unique_ptr<WatchConnection> watches_;
};

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
