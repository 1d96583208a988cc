#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/store.h"
#include "unisono/store/watch.h"

namespace unisono::store {

/// A part of another store, in which key "k" is that one's "prefix/k": users with prefixes of their
/// own do not meet. As PyTorch's PrefixStore; of nested ones the innermost comes first in the key.
///
/// Thread-safe and blocking as the store below is, whose errors it passes on: they name keys with
/// the prefix, as everybody else who looks into the store sees them.
class PrefixStore final : public Store {
 public:
  /// Shares `store` with its other users. Throws Error(kInvalidArgument) if there is none.
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

  /// Those of the whole store below, as in PyTorch; list_keys() has the prefix's own.
  [[nodiscard]] std::int64_t num_keys() override;

  /// Those of the prefix, without it. Costs as much as all keys of the store below.
  [[nodiscard]] std::vector<std::string> list_keys() override;

  [[nodiscard]] std::vector<std::string> multi_get(std::span<const std::string> keys,
                                                   Deadline deadline) override;
  void multi_set(std::span<const KeyValue> pairs) override;
  void queue_push(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string queue_pop(const std::string& key, Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> try_queue_pop(const std::string& key) override;
  [[nodiscard]] std::int64_t queue_len(const std::string& key) override;
  void barrier(const std::string& key, std::int64_t world_size, Deadline deadline) override;

  /// Tells of the key without the prefix.
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key,
                                             WatchCallback on_change) override;
  void set_at_end(const std::string& key, const std::string& value) override;

 private:
  [[nodiscard]] std::string whole(const std::string& key) const;
  [[nodiscard]] std::vector<std::string> whole(std::span<const std::string> keys) const;

  std::string prefix_;  // With its slash.
  std::shared_ptr<Store> store_;
};

}  // namespace unisono::store
