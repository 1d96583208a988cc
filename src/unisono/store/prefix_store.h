#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/store.h"

namespace unisono::store {

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
