#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono::store {

/// A change of a watched key.
struct KeyChange {
  std::string key;
  std::optional<std::string> before;  ///< std::nullopt if the key had no value.
  std::optional<std::string> after;   ///< std::nullopt if the key was deleted.

  friend bool operator==(const KeyChange&, const KeyChange&) = default;
};

/// Called on a thread of the store, for a single change at a time. Must not throw or destroy a
/// watch.
using WatchCallback = std::function<void(const KeyChange&)>;

/// Keeps a key watched for the lifetime of the object. After the destructor has returned, the
/// callback does not run any more.
class Watch {
 public:
  Watch() = default;
  virtual ~Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  Watch(Watch&&) = delete;
  Watch& operator=(Watch&&) = delete;
};

/// The key-value service through which ranks meet. Keys are text; values are arbitrary bytes.
///
/// Queues are separate from keys and have separate names: wait() and check() treat a key as present
/// if there is a value or a non-empty queue.
///
/// Implementations: TcpStore, FileStore, HashStore, PrefixStore. Thread-safe. Calls with a deadline
/// block until then at most.
///
/// Every call throws Error(kPeerLost) if the store is gone, and from then on Error(kClosed) with
/// the first cause. Calls with a deadline throw Error(kTimeout), which names the missing keys. The
/// store stays usable after Error(kTimeout) and Error(kInvalidArgument). A call without a reply,
/// such as set(), that exceeds a server's limits ends the connection; the next call throws the
/// reason.
class Store {
 public:
  using KeyValue = std::pair<std::string, std::string>;

  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  Store(Store&&) = delete;
  Store& operator=(Store&&) = delete;

  /// Sets the value of the key.
  virtual void set(const std::string& key, const std::string& value) = 0;

  /// Waits until the key has a value, and returns it.
  [[nodiscard]] virtual std::string get(const std::string& key, Deadline deadline) = 0;

  /// Returns the key's value, or std::nullopt if there is no value now.
  [[nodiscard]] virtual std::optional<std::string> try_get(const std::string& key) = 0;

  /// Adds `delta` to the decimal number at `key`, 0 if there is no value, and returns the sum.
  ///
  /// Throws Error(kInvalidArgument) if the value is not a number or the sum exceeds 64 bits.
  /// PyTorch's server ends the connection instead.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;

  /// Appends `value` to the key's value.
  virtual void append(const std::string& key, const std::string& value) = 0;

  /// Returns true if all keys are present.
  [[nodiscard]] virtual bool check(std::span<const std::string> keys) = 0;

  /// Returns once each of the keys is present, or has been present since the call.
  virtual void wait(std::span<const std::string> keys, Deadline deadline) = 0;

  /// Sets the key to `desired` if the value is `expected`, or if there is no value and `expected`
  /// is empty. Returns the value after the call, or `expected` if the key still has no value.
  virtual std::string compare_set(const std::string& key,
                                  const std::string& expected,
                                  const std::string& desired) = 0;

  /// Deletes the key. Returns true if the key existed.
  virtual bool delete_key(const std::string& key) = 0;

  /// Returns the number of keys of all users of the store, without queues.
  [[nodiscard]] virtual std::int64_t num_keys() = 0;

  /// Returns the keys in unspecified order.
  [[nodiscard]] virtual std::vector<std::string> list_keys() = 0;

  /// Waits until all keys have values, and returns the values.
  [[nodiscard]] virtual std::vector<std::string> multi_get(std::span<const std::string> keys,
                                                           Deadline deadline) = 0;

  /// Calls set() for each pair, in order, in a single request.
  virtual void multi_set(std::span<const KeyValue> pairs) = 0;

  /// Appends a value to the queue.
  virtual void queue_push(const std::string& key, const std::string& value) = 0;

  /// Waits until the queue has a value that no other client takes, and removes and returns the
  /// oldest value.
  [[nodiscard]] virtual std::string queue_pop(const std::string& key, Deadline deadline) = 0;

  /// Removes and returns the oldest value of the queue; std::nullopt if the queue is empty.
  [[nodiscard]] virtual std::optional<std::string> try_queue_pop(const std::string& key) = 0;

  /// Returns the number of values in the queue.
  [[nodiscard]] virtual std::int64_t queue_len(const std::string& key) = 0;

  /// Returns after `world_size` calls with this key. Each barrier needs a different key.
  virtual void barrier(const std::string& key, std::int64_t world_size, Deadline deadline) = 0;

  /// Calls `on_change` for each change of the key's value until the watch is destroyed; the store
  /// must outlive the watch. Some stores report only the last of several changes in quick
  /// succession. No more changes are reported once the store is gone.
  [[nodiscard]] virtual std::unique_ptr<Watch> watch(const std::string& key,
                                                     WatchCallback on_change) = 0;

  /// When this client disconnects for any reason, the server sets the key to `value`, at most 4
  /// KiB, if the key has no value then. A client has a single such value: a later call replaces it,
  /// and an empty value withdraws it. Has no effect on stores without a Unisono server.
  virtual void set_at_end(const std::string& /*key*/, const std::string& /*value*/) {}
};

/// Memory that each key and value of a request counts for in addition to its bytes: many empty
/// strings cost memory too.
inline constexpr std::size_t kStringOverhead = 32;

/// Limit of the value that a server sets when the client ends. Not counted in
/// Limits::max_store_bytes.
inline constexpr std::size_t kMaxLastWordBytes = 4096;

/// Limits of a store. Calls that exceed the limits throw Error(kInvalidArgument). A server refuses
/// such a request; if the request has no reply that could carry the reason, the server closes that
/// client's connection.
struct Limits {
  std::size_t max_key_bytes = std::size_t{8} << 10;
  std::size_t max_value_bytes = std::size_t{8} << 20;  ///< Applies to the result of append() too.
  std::size_t max_count = 131'072;                     ///< Keys in one request.
  std::size_t max_request_bytes = std::size_t{64} << 20;
  std::size_t max_unread_bytes = std::size_t{256} << 20;  ///< Replies that a client has not read.
  std::size_t max_store_bytes = std::size_t{4} << 30;     ///< Keys, values and queues together.
  std::size_t max_watches = 4'096;                        ///< Keys that one connection watches.
  std::size_t max_connections = 65'536;
};

/// The Error(kTimeout) for a server that accepts connections but does not reply.
class ServerUnresponsiveError final : public Error {
 public:
  /// `message` names the address and the time.
  explicit ServerUnresponsiveError(const std::string& message)
      : Error(ErrorCode::kTimeout, message) {}
};

/// The Error(kPeerLost) for a server that has sent the reason for ending the connection.
class ServerClosedError final : public Error {
 public:
  /// `message` contains the reason from the server.
  explicit ServerClosedError(const std::string& message) : Error(ErrorCode::kPeerLost, message) {}
};

/// A section of another store: key "k" of this store is key "prefix/k" of the other store, so that
/// users with different prefixes do not collide. Equivalent of PyTorch's PrefixStore; in nested
/// stores, the prefix of the store next to the base store comes first in the key.
///
/// Shares ownership of the other store. Threads, blocking and errors are as in the other store.
/// Error messages contain the keys with the prefix, as seen by other users.
class PrefixStore final : public Store {
 public:
  /// Throws Error(kInvalidArgument) if `store` is null.
  PrefixStore(const std::string& prefix, std::shared_ptr<Store> store);

  ~PrefixStore() override;

  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;
  PrefixStore(PrefixStore&&) = delete;
  PrefixStore& operator=(PrefixStore&&) = delete;

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

  /// Returns the number of keys of the whole store below, as in PyTorch. list_keys() returns the
  /// prefix's own keys.
  [[nodiscard]] std::int64_t num_keys() override;

  /// Returns the keys with the prefix, without the prefix. Costs as much as listing all keys of the
  /// store below.
  [[nodiscard]] std::vector<std::string> list_keys() override;

  [[nodiscard]] std::vector<std::string> multi_get(std::span<const std::string> keys,
                                                   Deadline deadline) override;
  void multi_set(std::span<const KeyValue> pairs) override;
  void queue_push(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string queue_pop(const std::string& key, Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> try_queue_pop(const std::string& key) override;
  [[nodiscard]] std::int64_t queue_len(const std::string& key) override;
  void barrier(const std::string& key, std::int64_t world_size, Deadline deadline) override;

  /// Reports the key without the prefix.
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key,
                                             WatchCallback on_change) override;
  void set_at_end(const std::string& key, const std::string& value) override;

 private:
  [[nodiscard]] std::string whole(const std::string& key) const;
  [[nodiscard]] std::vector<std::string> whole(std::span<const std::string> keys) const;

  std::string prefix_;  // Includes the slash.
  std::shared_ptr<Store> store_;
};

}  // namespace unisono::store
