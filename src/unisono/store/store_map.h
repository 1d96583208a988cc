#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unisono/store/watch.h"

namespace unisono::store {

/// Names a client among those of one StoreMap; never used twice.
using ClientId = std::uint64_t;

/// What a store holds, and who waits for what. Not thread-safe.
class StoreMap {
 public:
  void set(const std::string& key, std::string value);

  /// Nothing, and nothing changed, when the value is no decimal number or the sum does not fit.
  [[nodiscard]] std::optional<std::int64_t> add(const std::string& key, std::int64_t delta);

  /// What add() would make of the value.
  [[nodiscard]] std::optional<std::int64_t> sum_with(const std::string& key,
                                                     std::int64_t delta) const;

  void append(const std::string& key, const std::string& value);

  [[nodiscard]] std::string compare_set(const std::string& key,
                                        const std::string& expected,
                                        const std::string& desired);

  /// True if compare_set() would set the key.
  [[nodiscard]] bool matches(const std::string& key, const std::string& expected) const;

  /// Null if there is no value.
  [[nodiscard]] const std::string* find(const std::string& key) const;

  /// The value as it is now, whatever becomes of the key's; null if there is none.
  [[nodiscard]] std::shared_ptr<const std::string> share(const std::string& key) const;

  /// True if there was such a key. Queues stay.
  bool erase(const std::string& key);

  [[nodiscard]] std::size_t n_keys() const { return values_.size(); }

  [[nodiscard]] std::vector<std::string> keys() const;

  /// Wakes one client that waits for the key.
  void push(const std::string& key, std::string value);

  [[nodiscard]] std::optional<std::string> pop(const std::string& key);

  /// What pop() would take; null if the queue is empty.
  [[nodiscard]] const std::string* front(const std::string& key) const;

  [[nodiscard]] std::size_t queue_length(const std::string& key) const;

  /// True for a value or a queue that is not empty.
  [[nodiscard]] bool has(const std::string& key) const;

  /// True when all keys are there. Else the client waits: take_woken() names it when all those that
  /// were missing have come; one that goes again still counts.
  [[nodiscard]] bool wait(ClientId client, const std::vector<std::string>& keys);

  /// The client waits for what comes to the key next, a value or something in its queue, whatever
  /// is there now. What it waited for before is forgotten.
  void wait_for_next(ClientId client, const std::string& key);

  [[nodiscard]] bool is_waiting(ClientId client) const { return waits_.contains(client); }

  /// Counts one more call; true if that makes `world_size`, which wakes all who wait for the key.
  /// Else false, and the client waits. Nothing when the value is no number.
  [[nodiscard]] std::optional<bool> barrier(ClientId client,
                                            const std::string& key,
                                            std::int64_t world_size);

  /// Forgets what the client waits for.
  void cancel(ClientId client);

  /// The clients whose wait ended since the last call, in order.
  [[nodiscard]] std::vector<ClientId> take_woken();

  /// From now on take_news() has the key's changes for this client; once, if it is called twice.
  void watch(ClientId client, const std::string& key);

  void unwatch(ClientId client, const std::string& key);

  [[nodiscard]] std::size_t n_watched(ClientId client) const;

  /// A client that has gone waits for nothing and watches nothing, and what it leaves in a queue is
  /// for the next who waits.
  void forget(ClientId client);

  struct News {
    ClientId client;
    std::shared_ptr<const KeyChange> change;
  };

  /// What changed since the last call of what is watched, in order.
  [[nodiscard]] std::vector<News> take_news() { return std::exchange(news_, {}); }

  /// Memory that keys and values take, nearly.
  [[nodiscard]] std::size_t n_bytes() const { return n_bytes_; }

 private:
  struct Wait {
    std::size_t n_missing;
    std::vector<std::string> keys;
  };

  // A key's value before it changes, copied only for those who watch it.
  [[nodiscard]] std::optional<std::string> before(const std::string& key) const;
  void tell(const std::string& key, std::optional<std::string> before);
  // add() without waking anyone.
  std::optional<std::int64_t> add_quietly(const std::string& key, std::int64_t delta);
  std::string& value_at(const std::string& key);
  // Whether that ended its wait.
  bool count_down(ClientId client);
  void wake_all(const std::string& key);
  void wake_one(const std::string& key);

  std::map<std::string, std::shared_ptr<std::string>> values_;  // Changed only if unshared.
  std::map<std::string, std::deque<std::string>> queues_;
  std::unordered_map<std::string, std::deque<ClientId>> waiters_;
  std::unordered_map<ClientId, Wait> waits_;
  std::vector<ClientId> woken_;
  std::unordered_map<std::string, std::vector<ClientId>> watchers_;
  std::unordered_map<ClientId, std::set<std::string>> watched_;
  std::vector<News> news_;
  std::size_t n_bytes_ = 0;
};

}  // namespace unisono::store
