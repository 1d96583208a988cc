#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/store.h"

namespace unisono::store {

class StoreMap;
struct MapCall;
struct MapStep;

/// Base of the stores that keep a StoreMap in this process. Implements the calls as attempts on the
/// map; the derived class defines how the map is shared, in run().
///
/// Thread-safe if run() is. Errors: see Store and run().
class MapStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) final;
  [[nodiscard]] std::string get(const std::string& key, Deadline deadline) final;
  [[nodiscard]] std::optional<std::string> try_get(const std::string& key) final;
  std::int64_t add(const std::string& key, std::int64_t delta) final;
  void append(const std::string& key, const std::string& value) final;
  [[nodiscard]] bool check(std::span<const std::string> keys) final;
  void wait(std::span<const std::string> keys, Deadline deadline) final;
  std::string compare_set(const std::string& key,
                          const std::string& expected,
                          const std::string& desired) final;
  bool delete_key(const std::string& key) final;
  [[nodiscard]] std::int64_t num_keys() final;
  [[nodiscard]] std::vector<std::string> list_keys() final;
  [[nodiscard]] std::vector<std::string> multi_get(std::span<const std::string> keys,
                                                   Deadline deadline) final;
  void multi_set(std::span<const KeyValue> pairs) final;
  void queue_push(const std::string& key, const std::string& value) final;
  [[nodiscard]] std::string queue_pop(const std::string& key, Deadline deadline) final;
  [[nodiscard]] std::optional<std::string> try_queue_pop(const std::string& key) final;
  [[nodiscard]] std::int64_t queue_len(const std::string& key) final;
  void barrier(const std::string& key, std::int64_t world_size, Deadline deadline) final;

 protected:
  /// `name` is the prefix of error messages. `io_timeout` limits calls without a deadline.
  MapStore(std::string name, const Limits& limits, std::chrono::milliseconds io_timeout);

  /// Makes the attempts of the call, at least one, each on the current map and without concurrent
  /// access, and applies the changes. Returns false if the deadline passed before the call was
  /// complete.
  virtual bool run(const MapCall& call) = 0;

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] const Limits& limits() const { return limits_; }

 private:
  void look(const std::function<void(const StoreMap& map)>& body);
  void change(const std::function<void(StoreMap& map, std::vector<MapStep>& change)>& body);
  [[nodiscard]] std::vector<std::string> take_values(const char* call,
                                                     std::span<const std::string> keys,
                                                     Deadline deadline);
  [[noreturn]] void throw_missing(const char* call,
                                  std::span<const std::string> keys,
                                  Deadline::Clock::time_point start);
  [[nodiscard]] std::int64_t checked_sum(const StoreMap& map,
                                         const char* call,
                                         const std::string& key,
                                         std::int64_t delta) const;

  std::string name_;
  Limits limits_;
  std::chrono::milliseconds io_timeout_;
  // Relaxed use: the counter orders no other memory.
  std::atomic<std::uint64_t> last_client_ = 0;
};

/// A store within a process, for ranks that are threads and share the object. Thread-safe; a
/// waiting call does not delay other calls.
///
/// Calls that add to a value which is not a number, or that would exceed the limits, throw
/// Error(kInvalidArgument) and change no data. watch() reports every change, in order, on a thread
/// of the store.
class HashStore final : public MapStore {
 public:
  /// Creates an empty store. `limits` bounds keys, values and the memory of the store.
  explicit HashStore(const Limits& limits = {});

  /// No call may be in progress and no watch may exist.
  ~HashStore() override;

  HashStore(const HashStore&) = delete;
  HashStore& operator=(const HashStore&) = delete;
  HashStore(HashStore&&) = delete;
  HashStore& operator=(HashStore&&) = delete;

  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key,
                                             WatchCallback on_change) override;

 private:
  class Impl;

  bool run(const MapCall& call) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::store
