#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "unisono/base/deadline.h"
#include "unisono/store/store.h"

namespace unisono::python {

/// Wraps a store of PyTorch, or of a Python program, as a Store. Calls that the wrapped store does
/// not support (queues, listing keys) throw Error(kInvalidArgument). If the wrapped store lacks
/// append(), append() reads and exchanges values; of two equal values that are appended at the same
/// time, one may be lost. As thread-safe as the wrapped store.
class C10dStore final : public store::Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  /// Clones the store with a connection of its own, if the store has connections. Requests have the
  /// timeout `timeout`.
  [[nodiscard]] static std::shared_ptr<store::Store> clone_of(
      const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  void append(const std::string& key, const std::string& value) override;
  bool check(std::span<const std::string> keys) override;
  void wait(std::span<const std::string> keys, Deadline deadline) override;
  std::string compare_set(const std::string& key,
                          const std::string& expected,
                          const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  std::vector<std::string> multi_get(std::span<const std::string> keys, Deadline deadline) override;
  void multi_set(std::span<const KeyValue> pairs) override;
  void queue_push(const std::string& key, const std::string& value) override;
  std::string queue_pop(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_queue_pop(const std::string& key) override;
  std::int64_t queue_len(const std::string& key) override;
  void barrier(const std::string& key, std::int64_t world_size, Deadline deadline) override;
  std::unique_ptr<store::Watch> watch(const std::string& key,
                                      store::WatchCallback on_change) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace unisono::python
