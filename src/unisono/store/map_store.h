#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/limits.h"
#include "unisono/store/store.h"

namespace unisono::store {

class StoreMap;
struct MapCall;
struct Step;

/// A store whose whole content is a StoreMap in this process: what each call looks at, changes and
/// waits for. Who derives says how the map is shared, and with whom.
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
  /// `name` stands before messages, `io_timeout` is for calls that take no deadline.
  MapStore(std::string name, const Limits& limits, std::chrono::milliseconds io_timeout);

  /// Makes the call's attempts, at least one, each on the map as everybody's changes have made it,
  /// with nobody else at the map, and carries out their changes. False when the deadline passed
  /// first.
  virtual bool run(const MapCall& call) = 0;

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] const Limits& limits() const { return limits_; }

 private:
  void look(const std::function<void(const StoreMap& map)>& body);
  void change(const std::function<void(StoreMap& map, std::vector<Step>& change)>& body);
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
  // Alone: the counter orders nothing else.
  std::atomic<std::uint64_t> last_client_ = 0;
};

}  // namespace unisono::store
