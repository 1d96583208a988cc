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
#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/store/limits.h"
#include "unisono/store/server_errors.h"
#include "unisono/store/store.h"
#include "unisono/store/watch.h"

namespace unisono::store {

class StoreConnection;
class TimedMutex;
class WatchConnection;

struct TcpStoreOptions {
  std::string host;  ///< Name or numeric address.
  std::uint16_t port = 0;
  /// Proves itself and wants proof. Empty: speaks to PyTorch's own server as well as to ours.
  std::string secret;
  bool tls = false;        ///< Speaks TLS 1.3, whose key is made from the secret.
  std::int32_t rank = -1;  ///< Told to the server.
  /// Whether a server that is not there may still come; else it is gone.
  net::IfRefused if_refused = net::IfRefused::kTryAgain;
  /// For what is no wait of the caller's: sending a request, and a reply that is due at once.
  std::chrono::milliseconds io_timeout = std::chrono::seconds(30);
  Limits limits = {};
};

/// A store behind a TcpStoreServer or PyTorch's TCPStore server.
///
/// Thread-safe: one request at a time, so a call waits, within its own deadline, for the one
/// before.
class TcpStore final : public Store {
 public:
  /// Connects, trying again while nobody listens there yet.
  ///
  /// Throws Error: kTimeout with the address and the last reason, as ServerUnresponsiveError where
  /// somebody accepts connections there; kUnauthenticated, kIncompatible; kPeerLost when what
  /// listens there hangs up, being no store of this job, and at once when nobody listens and nobody
  /// is to come.
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

  /// The name that the server has for its job; empty where it has none, as PyTorch's.
  [[nodiscard]] const std::string& job() const;

  /// The connection, to be watched for its end, not to be read from.
  [[nodiscard]] int fd() const;

  /// The address of this side of the connection: one that the store's host can reach.
  [[nodiscard]] net::Address local_address() const;

 private:
  [[noreturn]] void throw_missing(const char* call,
                                  std::span<const std::string> keys,
                                  Deadline::Clock::time_point start);

  TcpStoreOptions options_;
  std::unique_ptr<StoreConnection> connection_;
  std::unique_ptr<TimedMutex> watch_mutex_;
  // From the first watch on; belongs to who holds the mutex.
  std::unique_ptr<WatchConnection> watches_;
};

}  // namespace unisono::store
