#include "unisono/store/hash_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/store/refusals.h"
#include "unisono/store/store_map.h"
#include "unisono/store/watch_dispatcher.h"

namespace unisono::store {
namespace {

bool has_all(const StoreMap& map, std::span<const std::string> keys) {
  return std::ranges::all_of(keys, [&](const std::string& key) { return map.has(key); });
}

}  // namespace

MapStore::MapStore(std::string name, const Limits& limits, std::chrono::milliseconds io_timeout)
    : name_(std::move(name)), limits_(limits), io_timeout_(io_timeout) {}

void MapStore::set(const std::string& key, const std::string& value) {
  check_sizes(limits_, key, value.size());
  change([&](const StoreMap&, Change& change) {
    change.push_back({.kind = StepKind::kSet, .key = key, .value = value});
  });
}

std::string MapStore::get(const std::string& key, Deadline deadline) {
  return std::move(take_values("get", {&key, 1}, deadline).front());
}

std::optional<std::string> MapStore::try_get(const std::string& key) {
  check_sizes(limits_, key, 0);
  std::optional<std::string> value;
  look([&](const StoreMap& map) {
    if (const std::string* found = map.find(key)) {
      value = *found;
    }
  });
  return value;
}

std::int64_t MapStore::add(const std::string& key, std::int64_t delta) {
  check_sizes(limits_, key, 0);
  std::int64_t sum = 0;
  change([&](const StoreMap& map, Change& change) {
    sum = checked_sum(map, "add", key, delta);
    change.push_back({.kind = StepKind::kSet, .key = key, .value = std::to_string(sum)});
  });
  return sum;
}

void MapStore::append(const std::string& key, const std::string& value) {
  change([&](const StoreMap& map, Change& change) {
    const std::string* found = map.find(key);
    check_sizes(limits_, key, value.size() + (found == nullptr ? 0 : found->size()));
    change.push_back({.kind = StepKind::kAppend, .key = key, .value = value});
  });
}

bool MapStore::check(std::span<const std::string> keys) {
  check_sizes(limits_, keys);
  bool are_there = false;
  look([&](const StoreMap& map) { are_there = has_all(map, keys); });
  return are_there;
}

void MapStore::wait(std::span<const std::string> keys, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, keys);
  const ClientId client = ++last_client_;
  bool has_begun = false;
  const bool is_done = run({.access = Access::kLook,
                            .deadline = deadline,
                            .client = client,
                            .attempt = [&](StoreMap& map, Change&) {
                              if (!std::exchange(has_begun, true)) {
                                return map.wait(client, {keys.begin(), keys.end()});
                              }
                              // A push wakes a client of the map, perhaps not this client.
                              return !map.is_waiting(client) || has_all(map, keys);
                            }});
  if (!is_done) {
    throw_missing("wait", keys, start);
  }
}

std::string MapStore::compare_set(const std::string& key,
                                  const std::string& expected,
                                  const std::string& desired) {
  check_sizes(limits_, key, std::max(expected.size(), desired.size()));
  std::string value;
  change([&](StoreMap& map, Change& change) {
    if (map.matches(key, expected)) {
      change.push_back({.kind = StepKind::kSet, .key = key, .value = desired});
      value = desired;
    } else {
      value = map.compare_set(key, expected, desired);  // No match, so no change.
    }
  });
  return value;
}

bool MapStore::delete_key(const std::string& key) {
  check_sizes(limits_, key, 0);
  bool was_there = false;
  change([&](const StoreMap& map, Change& change) {
    was_there = map.find(key) != nullptr;
    if (was_there) {
      change.push_back({.kind = StepKind::kErase, .key = key});
    }
  });
  return was_there;
}

std::int64_t MapStore::num_keys() {
  std::int64_t n_keys = 0;
  look([&](const StoreMap& map) { n_keys = static_cast<std::int64_t>(map.n_keys()); });
  return n_keys;
}

std::vector<std::string> MapStore::list_keys() {
  std::vector<std::string> keys;
  look([&](const StoreMap& map) { keys = map.keys(); });
  return keys;
}

std::vector<std::string> MapStore::multi_get(std::span<const std::string> keys, Deadline deadline) {
  return take_values("multi_get", keys, deadline);
}

void MapStore::multi_set(std::span<const KeyValue> pairs) {
  check_sizes(limits_, pairs);
  change([&](const StoreMap&, Change& change) {
    for (const auto& [key, value] : pairs) {
      change.push_back({.kind = StepKind::kSet, .key = key, .value = value});
    }
  });
}

void MapStore::queue_push(const std::string& key, const std::string& value) {
  check_sizes(limits_, key, value.size());
  change([&](const StoreMap&, Change& change) {
    change.push_back({.kind = StepKind::kPush, .key = key, .value = value});
  });
}

std::string MapStore::queue_pop(const std::string& key, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, key, 0);
  std::string value;
  const ClientId client = ++last_client_;
  const bool is_done = run({.access = Access::kChange,
                            .deadline = deadline,
                            .client = client,
                            .attempt = [&](StoreMap& map, Change& change) {
                              const std::string* front = map.front(key);
                              if (front == nullptr) {
                                map.wait_for_next(client, key);
                                return false;
                              }
                              value = *front;
                              change.push_back({.kind = StepKind::kPop, .key = key});
                              return true;
                            }});
  if (!is_done) {
    throw_missing("queue_pop", {&key, 1}, start);
  }
  return value;
}

std::optional<std::string> MapStore::try_queue_pop(const std::string& key) {
  check_sizes(limits_, key, 0);
  std::optional<std::string> value;
  change([&](const StoreMap& map, Change& change) {
    value.reset();
    if (const std::string* front = map.front(key)) {
      value = *front;
      change.push_back({.kind = StepKind::kPop, .key = key});
    }
  });
  return value;
}

std::int64_t MapStore::queue_len(const std::string& key) {
  check_sizes(limits_, key, 0);
  std::int64_t length = 0;
  look([&](const StoreMap& map) { length = static_cast<std::int64_t>(map.queue_length(key)); });
  return length;
}

void MapStore::barrier(const std::string& key, std::int64_t world_size, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, key, 0);
  const ClientId client = ++last_client_;
  bool is_counted = false;
  const bool is_done =
      run({.access = Access::kChange,
           .deadline = deadline,
           .client = client,
           .attempt = [&](StoreMap& map, Change& change) {
             if (std::exchange(is_counted, true)) {
               return !map.is_waiting(client);
             }
             (void)checked_sum(map, "barrier", key, 1);
             change.push_back({.kind = StepKind::kCount, .key = key, .world_size = world_size});
             return false;
           }});
  if (!is_done) {
    throw incomplete_barrier(name_, key, try_get(key).value_or("0"), world_size, start);
  }
}

std::vector<std::string> MapStore::take_values(const char* call,
                                               std::span<const std::string> keys,
                                               Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, keys);
  std::vector<std::string> values;
  const ClientId client = ++last_client_;
  const bool is_done =
      run({.access = Access::kLook,
           .deadline = deadline,
           .client = client,
           .attempt = [&](StoreMap& map, Change&) {
             const auto missing = std::ranges::find_if(
                 keys, [&](const std::string& key) { return map.find(key) == nullptr; });
             if (missing != keys.end()) {
               map.wait_for_next(client, *missing);
               return false;
             }
             for (const std::string& key : keys) {
               values.push_back(*map.find(key));
             }
             return true;
           }});
  if (!is_done) {
    throw_missing(call, keys, start);
  }
  return values;
}

void MapStore::look(const std::function<void(const StoreMap& map)>& body) {
  (void)run({.access = Access::kLook,
             .deadline = Deadline::after(io_timeout_),
             .attempt = [&](StoreMap& map, Change&) {
               body(map);
               return true;
             }});
}

void MapStore::change(const std::function<void(StoreMap& map, Change& change)>& body) {
  (void)run({.access = Access::kChange,
             .deadline = Deadline::after(io_timeout_),
             .attempt = [&](StoreMap& map, Change& change) {
               body(map, change);
               return true;
             }});
}

void MapStore::throw_missing(const char* call,
                             std::span<const std::string> keys,
                             Deadline::Clock::time_point start) {
  std::set<std::string> there;
  look([&](const StoreMap& map) {
    std::ranges::copy_if(keys, std::inserter(there, there.end()), [&](const std::string& key) {
      return map.has(key);
    });
  });
  throw missing_keys(
      name_, call, keys, [&](const std::string& key) { return there.contains(key); }, start);
}

// A sum that cannot be computed is an error of the caller and changes no data.
std::int64_t MapStore::checked_sum(const StoreMap& map,
                                   const char* call,
                                   const std::string& key,
                                   std::int64_t delta) const {
  const std::optional<std::int64_t> sum = map.sum_with(key, delta);
  if (!sum) {
    throw Refusal(fmt::format("{}: {}", name_, no_sum(call, key, *map.find(key), delta)));
  }
  return *sum;
}

namespace {

std::optional<std::string> value_of(const StoreMap& map, const std::string& key) {
  const std::string* value = map.find(key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

}  // namespace

class HashStore::Impl {
 public:
  explicit Impl(const HashStore& store) : store_(store) {}

  [[nodiscard]] WatchDispatcher& watches() { return watches_; }

  bool run(const MapCall& call) UNISONO_EXCLUDES(mutex_);

 private:
  void carry_out(Change change, ClientId client) UNISONO_REQUIRES(mutex_);
  void take_step(MapStep step, ClientId client) UNISONO_REQUIRES(mutex_);

  const HashStore& store_;
  WatchDispatcher watches_;
  Mutex mutex_;
  Condition changed_;
  StoreMap map_ UNISONO_GUARDED_BY(mutex_);
};

// Calls never wait for I/O, so the timeout is irrelevant.
HashStore::HashStore(const Limits& limits)
    : MapStore("hash store", limits, std::chrono::seconds(30)),
      impl_(std::make_unique<Impl>(*this)) {}

HashStore::~HashStore() = default;

std::unique_ptr<Watch> HashStore::watch(const std::string& key, WatchCallback on_change) {
  check_sizes(limits(), key, 0);
  return impl_->watches().watch(key, std::move(on_change));
}

bool HashStore::run(const MapCall& call) {
  return impl_->run(call);
}

bool HashStore::Impl::run(const MapCall& call) {
  const MutexLock lock(mutex_);
  for (;;) {
    Change change;
    const bool is_done = call.attempt(map_, change);
    const bool has_changed = !change.empty();
    if (has_changed) {
      carry_out(std::move(change), call.client);
    }
    if (is_done || (!has_changed && call.deadline.has_passed())) {
      map_.cancel(call.client);
      return is_done;
    }
    if (!has_changed) {
      if (call.deadline.is_never()) {
        changed_.wait(mutex_);
      } else {
        (void)changed_.wait_until(mutex_, call.deadline.time());
      }
    }
  }
}

void HashStore::Impl::carry_out(Change change, ClientId client) {
  const std::size_t n_new = n_new_bytes(change);
  if (n_new > 0 && map_.n_bytes() + n_new > store_.limits().max_store_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: holds {} bytes and would get {} more; at most {} are allowed",
                            store_.name(),
                            map_.n_bytes(),
                            n_new,
                            store_.limits().max_store_bytes));
  }
  bool may_end_calls = false;
  for (MapStep& step : change) {
    may_end_calls = may_end_calls || step.kind == StepKind::kPush;
    take_step(std::move(step), client);
  }
  // Wakes all waiting calls: a call that the map does not wake may want the pushed value too.
  if (!map_.take_woken().empty() || may_end_calls) {
    changed_.notify_all();
  }
}

// Changes are queued for the watchers under the lock, which keeps the order. The callbacks run
// without the lock.
void HashStore::Impl::take_step(MapStep step, ClientId client) {
  if (!watches_.is_watched(step.key)) {
    apply(map_, std::move(step), client);
    return;
  }
  KeyChange change{.key = step.key, .before = value_of(map_, step.key), .after = std::nullopt};
  apply(map_, std::move(step), client);
  change.after = value_of(map_, change.key);
  if (change.before != change.after) {
    watches_.tell(change);
  }
}

}  // namespace unisono::store
