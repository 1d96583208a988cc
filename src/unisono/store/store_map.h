#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/store/store.h"

namespace unisono::store {

/// Identifies a client of a StoreMap. Never reused.
using ClientId = std::uint64_t;

/// The contents of a store and the clients that wait for or watch keys, without I/O. Not
/// thread-safe. Errors are return values.
class StoreMap {
 public:
  void set(const std::string& key, std::string value);

  /// Returns std::nullopt, without a change, if the value is not a decimal number or the sum does
  /// not fit.
  [[nodiscard]] std::optional<std::int64_t> add(const std::string& key, std::int64_t delta);

  /// Returns the result that add() would have.
  [[nodiscard]] std::optional<std::int64_t> sum_with(const std::string& key,
                                                     std::int64_t delta) const;

  void append(const std::string& key, const std::string& value);

  [[nodiscard]] std::string compare_set(const std::string& key,
                                        const std::string& expected,
                                        const std::string& desired);

  /// Returns true if compare_set() would set the key.
  [[nodiscard]] bool matches(const std::string& key, const std::string& expected) const;

  /// Returns null if there is no value.
  [[nodiscard]] const std::string* find(const std::string& key) const;

  /// Returns the current value, which later changes of the key do not affect; null if there is no
  /// value.
  [[nodiscard]] std::shared_ptr<const std::string> share(const std::string& key) const;

  /// Returns true if the key existed. Does not affect queues.
  bool erase(const std::string& key);

  [[nodiscard]] std::size_t n_keys() const { return values_.size(); }

  [[nodiscard]] std::vector<std::string> keys() const;

  /// Wakes a client that waits for the key.
  void push(const std::string& key, std::string value);

  [[nodiscard]] std::optional<std::string> pop(const std::string& key);

  /// Returns the value that pop() would return; null if the queue is empty.
  [[nodiscard]] const std::string* front(const std::string& key) const;

  [[nodiscard]] std::size_t queue_length(const std::string& key) const;

  /// Returns true if the key has a value or a non-empty queue.
  [[nodiscard]] bool has(const std::string& key) const;

  /// Returns true if all keys are present. Otherwise the client waits: take_woken() returns the
  /// client once every missing key has appeared. A key that disappears again still counts.
  [[nodiscard]] bool wait(ClientId client, const std::vector<std::string>& keys);

  /// Makes the client wait for the next value of the key or of its queue, regardless of the present
  /// contents. Replaces an earlier wait of the client.
  void wait_for_next(ClientId client, const std::string& key);

  [[nodiscard]] bool is_waiting(ClientId client) const { return waits_.contains(client); }

  /// Counts a call. Returns true if the count reaches `world_size`, and wakes all clients that wait
  /// for the key. Returns false otherwise; the client then waits. Returns std::nullopt if the value
  /// is not a number.
  [[nodiscard]] std::optional<bool> barrier(ClientId client,
                                            const std::string& key,
                                            std::int64_t world_size);

  /// Cancels the client's wait.
  void cancel(ClientId client);

  /// Returns the clients with waits that ended since the last call, in order.
  [[nodiscard]] std::vector<ClientId> take_woken();

  /// From now on take_news() contains the key's changes for this client, once per change even if
  /// the client watches the key twice.
  void watch(ClientId client, const std::string& key);

  void unwatch(ClientId client, const std::string& key);

  [[nodiscard]] std::size_t n_watched(ClientId client) const;

  /// Removes all waits and watches of a client that has gone. Queue values that the client was
  /// woken for go to the next waiting client.
  void forget(ClientId client);

  struct News {
    ClientId client;
    std::shared_ptr<const KeyChange> change;
  };

  /// Returns the changes of watched keys since the last call, in order.
  [[nodiscard]] std::vector<News> take_news() { return std::exchange(news_, {}); }

  /// Approximate memory of keys and values, in bytes.
  [[nodiscard]] std::size_t n_bytes() const { return n_bytes_; }

 private:
  struct Wait {
    std::size_t n_missing;
    std::vector<std::string> keys;
  };

  // Returns a key's value before a change; copied only if a client watches the key.
  [[nodiscard]] std::optional<std::string> before(const std::string& key) const;
  void tell(const std::string& key, std::optional<std::string> before);
  // add() without waking clients.
  std::optional<std::int64_t> add_quietly(const std::string& key, std::int64_t delta);
  std::string& value_at(const std::string& key);
  // Returns true if the client's wait has ended.
  bool count_down(ClientId client);
  void wake_all(const std::string& key);
  void wake_one(const std::string& key);

  // Modified in place only if unshared.
  std::map<std::string, std::shared_ptr<std::string>> values_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::unordered_map<std::string, std::deque<ClientId>> waiters_;
  std::unordered_map<ClientId, Wait> waits_;
  std::vector<ClientId> woken_;
  std::unordered_map<std::string, std::vector<ClientId>> watchers_;
  std::unordered_map<ClientId, std::set<std::string>> watched_;
  std::vector<News> news_;
  std::size_t n_bytes_ = 0;
};

/// Kinds of steps. The values are part of the file format of FileStore: append only.
enum class StepKind : std::uint8_t {
  kSet = 1,
  kAppend = 2,
  kErase = 3,
  kPush = 4,
  kPop = 5,
  kCount = 6,  ///< Counts a call of a barrier.
};

/// A single modification of a StoreMap.
struct MapStep {
  StepKind kind = StepKind::kSet;
  std::string key;
  std::string value = {};       ///< For kSet, kAppend and kPush.
  std::int64_t world_size = 0;  ///< For kCount.

  friend bool operator==(const MapStep&, const MapStep&) = default;
};

/// Steps that become visible together or not at all.
using Change = std::vector<MapStep>;

/// The id of no client.
inline constexpr ClientId kNobody = 0;

/// Applies the step to `map`. For kCount, `client` waits in the map until the barrier is complete.
void apply(StoreMap& map, MapStep step, ClientId client);

/// Returns the bytes of keys and values that the change adds.
[[nodiscard]] std::size_t n_new_bytes(const Change& change);

// Format of each step: u8 kind, string key, then a string value or an i64 world size if the kind
// needs a value.
void encode(ByteWriter& writer, const Change& change);

/// Parses a change. Returns std::nullopt unless `bytes` is a sequence of complete steps.
[[nodiscard]] std::optional<Change> decode_change(std::span<const std::byte> bytes);

/// Access of a call to the map: read only, or with changes.
enum class Access : std::uint8_t { kLook, kChange };

/// A call of a MapStore.
struct MapCall {
  Access access;  ///< The access that the call will most likely need first.
  Deadline deadline;
  /// The client that may wait in the map, for the duration of the call.
  ClientId client = kNobody;

  /// Makes an attempt: reads the map, appends the required steps to `change`, which is empty, and
  /// returns true if the call is then complete. After false the attempt is repeated once the map
  /// has changed, by this call or by another.
  ///
  /// The change of the first attempt of a kChange call is applied unless there is an error. Any
  /// other attempt may be repeated without the change being applied.
  std::function<bool(StoreMap& map, Change& change)> attempt;
};

}  // namespace unisono::store
