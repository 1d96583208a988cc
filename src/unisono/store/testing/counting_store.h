#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/store/store.h"

namespace unisono::store::testing {

/// Forwards to another store and counts the requests. As thread-safe as the other store.
class CountingStore final : public Store {
 public:
  explicit CountingStore(Store& store) : store_(store) {}

  [[nodiscard]] int n_requests() const { return n_requests_; }

  void set(const std::string& key, const std::string& value) override { next().set(key, value); }

  std::string get(const std::string& key, Deadline deadline) override {
    return next().get(key, deadline);
  }

  std::optional<std::string> try_get(const std::string& key) override {
    return next().try_get(key);
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return next().add(key, delta);
  }

  void append(const std::string& key, const std::string& value) override {
    next().append(key, value);
  }

  bool check(std::span<const std::string> keys) override { return next().check(keys); }

  void wait(std::span<const std::string> keys, Deadline deadline) override {
    next().wait(keys, deadline);
  }

  std::string compare_set(const std::string& key,
                          const std::string& expected,
                          const std::string& desired) override {
    return next().compare_set(key, expected, desired);
  }

  bool delete_key(const std::string& key) override { return next().delete_key(key); }

  std::int64_t num_keys() override { return next().num_keys(); }

  std::vector<std::string> list_keys() override { return next().list_keys(); }

  std::vector<std::string> multi_get(std::span<const std::string> keys,
                                     Deadline deadline) override {
    return next().multi_get(keys, deadline);
  }

  void multi_set(std::span<const KeyValue> pairs) override { next().multi_set(pairs); }

  void queue_push(const std::string& key, const std::string& value) override {
    next().queue_push(key, value);
  }

  std::string queue_pop(const std::string& key, Deadline deadline) override {
    return next().queue_pop(key, deadline);
  }

  std::optional<std::string> try_queue_pop(const std::string& key) override {
    return next().try_queue_pop(key);
  }

  std::int64_t queue_len(const std::string& key) override { return next().queue_len(key); }

  void barrier(const std::string& key, std::int64_t world_size, Deadline deadline) override {
    next().barrier(key, world_size, deadline);
  }

  std::unique_ptr<Watch> watch(const std::string& key, WatchCallback on_change) override {
    return next().watch(key, std::move(on_change));
  }

 private:
  Store& next() {
    ++n_requests_;
    return store_;
  }

  Store& store_;
  std::atomic<int> n_requests_ = 0;  // Relaxed order is sufficient for this counter.
};

}  // namespace unisono::store::testing
