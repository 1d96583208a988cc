#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/watch.h"

namespace unisono::store {

/// The key-value service that ranks meet through. Keys are text; values are any bytes. Thread-safe.
///
/// Besides keys there are queues, under names of their own: wait() and check() take a key as there
/// when it has a value or a queue that is not empty.
///
/// Every call throws Error(kPeerLost) when the store is gone, and kClosed, with the first cause,
/// from then on. Those that take a deadline throw Error(kTimeout) that names the keys which did not
/// come; the store stays usable, as after Error(kInvalidArgument). What is beyond a server's limits
/// in a call without an answer, as set(), ends the connection, and the next call says why.
class Store {
 public:
  using KeyValue = std::pair<std::string, std::string>;

  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  Store(Store&&) = delete;
  Store& operator=(Store&&) = delete;

  virtual void set(const std::string& key, const std::string& value) = 0;

  /// The key's value, as soon as there is one.
  [[nodiscard]] virtual std::string get(const std::string& key, Deadline deadline) = 0;

  /// The key's value if there is one now.
  [[nodiscard]] virtual std::optional<std::string> try_get(const std::string& key) = 0;

  /// Adds to the decimal number at `key`, 0 if there is none, and returns the sum.
  ///
  /// Throws Error(kInvalidArgument) where there is no number, or the sum is beyond 64 bits;
  /// PyTorch's server ends the connection instead.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;

  /// Puts `value` behind what is there.
  virtual void append(const std::string& key, const std::string& value) = 0;

  /// True if all keys are there.
  [[nodiscard]] virtual bool check(std::span<const std::string> keys) = 0;

  /// Returns when all keys are there, or have been since the call.
  virtual void wait(std::span<const std::string> keys, Deadline deadline) = 0;

  /// Sets the key to `desired` if its value is `expected`, or it has none and `expected` is empty.
  /// Returns the value then; `expected` if there is still none.
  virtual std::string compare_set(const std::string& key,
                                  const std::string& expected,
                                  const std::string& desired) = 0;

  /// True if there was such a key.
  virtual bool delete_key(const std::string& key) = 0;

  /// Number of keys of everybody who uses the store, without queues.
  [[nodiscard]] virtual std::int64_t num_keys() = 0;

  /// The keys, in no order that means anything.
  [[nodiscard]] virtual std::vector<std::string> list_keys() = 0;

  /// The keys' values, as soon as all are there.
  [[nodiscard]] virtual std::vector<std::string> multi_get(std::span<const std::string> keys,
                                                           Deadline deadline) = 0;

  /// set() for each, in order, in one request.
  virtual void multi_set(std::span<const KeyValue> pairs) = 0;

  virtual void queue_push(const std::string& key, const std::string& value) = 0;

  /// The oldest value of the queue, as soon as there is one that no other took.
  [[nodiscard]] virtual std::string queue_pop(const std::string& key, Deadline deadline) = 0;

  [[nodiscard]] virtual std::optional<std::string> try_queue_pop(const std::string& key) = 0;

  [[nodiscard]] virtual std::int64_t queue_len(const std::string& key) = 0;

  /// Returns when `world_size` calls with this key were made. Each barrier needs a key of its own.
  virtual void barrier(const std::string& key, std::int64_t world_size, Deadline deadline) = 0;

  /// Calls `on_change` whenever the key's value changes, from now on until the watch is destroyed,
  /// which the store outlives. Of values that replace each other quickly, some stores tell of the
  /// last only. When the store is gone, nothing more comes.
  [[nodiscard]] virtual std::unique_ptr<Watch> watch(const std::string& key,
                                                     WatchCallback on_change) = 0;

  /// When this client ends or is lost, the server sets the key to `value`, of at most 4 KiB, if it
  /// has none then; an empty one takes an earlier call back. A client has one such value. Nothing
  /// comes of it where a store has no server of ours.
  virtual void set_at_end(const std::string& /*key*/, const std::string& /*value*/) {}
};

}  // namespace unisono::store
