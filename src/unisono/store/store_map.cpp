#include "unisono/store/store_map.h"

#include <charconv>
#include <string_view>
#include <system_error>

namespace unisono::store {
namespace {

// Approximate memory of a map's node in addition to the bytes of its strings.
constexpr std::size_t kNodeBytes = 128;

std::optional<std::int64_t> parse_number(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

void StoreMap::set(const std::string& key, std::string value) {
  std::optional<std::string> old = before(key);
  std::string& place = value_at(key);
  n_bytes_ += value.size();
  n_bytes_ -= place.size();
  place = std::move(value);
  tell(key, std::move(old));
  wake_all(key);
}

std::optional<std::int64_t> StoreMap::add(const std::string& key, std::int64_t delta) {
  const std::optional<std::int64_t> sum = add_quietly(key, delta);
  if (sum) {
    wake_all(key);
  }
  return sum;
}

std::optional<std::int64_t> StoreMap::sum_with(const std::string& key, std::int64_t delta) const {
  const std::string* current = find(key);
  const std::optional<std::int64_t> number = current == nullptr ? 0 : parse_number(*current);
  std::int64_t sum = 0;
  if (!number || __builtin_add_overflow(*number, delta, &sum)) {
    return std::nullopt;
  }
  return sum;
}

void StoreMap::append(const std::string& key, const std::string& value) {
  std::optional<std::string> old = before(key);
  value_at(key) += value;
  n_bytes_ += value.size();
  tell(key, std::move(old));
  wake_all(key);
}

std::string StoreMap::compare_set(const std::string& key,
                                  const std::string& expected,
                                  const std::string& desired) {
  if (matches(key, expected)) {
    set(key, desired);
    return desired;
  }
  const std::string* current = find(key);
  // PyTorch's protocol replies with `expected` for a missing key.
  return current == nullptr ? expected : *current;
}

bool StoreMap::matches(const std::string& key, const std::string& expected) const {
  const std::string* current = find(key);
  return current == nullptr ? expected.empty() : *current == expected;
}

const std::string* StoreMap::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second.get();
}

std::shared_ptr<const std::string> StoreMap::share(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second;
}

bool StoreMap::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    return false;
  }
  std::optional<std::string> old = before(key);
  n_bytes_ -= key.size() + found->second->size() + kNodeBytes;
  values_.erase(found);
  tell(key, std::move(old));
  return true;
}

std::vector<std::string> StoreMap::keys() const {
  std::vector<std::string> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) {
    keys.push_back(key);
  }
  return keys;
}

void StoreMap::push(const std::string& key, std::string value) {
  n_bytes_ += key.size() + value.size() + kNodeBytes;
  queues_[key].push_back(std::move(value));
  wake_one(key);
}

std::optional<std::string> StoreMap::pop(const std::string& key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) {
    return std::nullopt;
  }
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  n_bytes_ -= key.size() + value.size() + kNodeBytes;
  if (found->second.empty()) {
    queues_.erase(found);
  }
  return value;
}

const std::string* StoreMap::front(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? nullptr : &found->second.front();
}

std::size_t StoreMap::queue_length(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

bool StoreMap::has(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

bool StoreMap::wait(ClientId client, const std::vector<std::string>& keys) {
  Wait wait{.n_missing = 0, .keys = {}};
  std::set<std::string_view> seen;
  for (const std::string& key : keys) {
    if (!has(key) && seen.insert(key).second) {
      waiters_[key].push_back(client);
      wait.keys.push_back(key);
      ++wait.n_missing;
    }
  }
  if (wait.n_missing == 0) {
    return true;
  }
  waits_.emplace(client, std::move(wait));
  return false;
}

void StoreMap::wait_for_next(ClientId client, const std::string& key) {
  cancel(client);
  waiters_[key].push_back(client);
  waits_.emplace(client, Wait{.n_missing = 1, .keys = {key}});
}

std::optional<bool> StoreMap::barrier(ClientId client,
                                      const std::string& key,
                                      std::int64_t world_size) {
  const std::optional<std::int64_t> count = add_quietly(key, 1);
  if (!count) {
    return std::nullopt;
  }
  if (*count >= world_size) {
    wake_all(key);
    return true;
  }
  wait_for_next(client, key);
  return false;
}

void StoreMap::cancel(ClientId client) {
  const auto found = waits_.find(client);
  if (found == waits_.end()) {
    return;
  }
  for (const std::string& key : found->second.keys) {
    const auto waiters = waiters_.find(key);
    if (waiters != waiters_.end()) {
      std::erase(waiters->second, client);
      if (waiters->second.empty()) {
        waiters_.erase(waiters);
      }
    }
  }
  waits_.erase(found);
}

std::vector<ClientId> StoreMap::take_woken() {
  return std::exchange(woken_, {});
}

void StoreMap::watch(ClientId client, const std::string& key) {
  if (watched_[client].insert(key).second) {
    watchers_[key].push_back(client);
  }
}

void StoreMap::unwatch(ClientId client, const std::string& key) {
  const auto watched = watched_.find(client);
  if (watched == watched_.end() || watched->second.erase(key) == 0) {
    return;
  }
  if (watched->second.empty()) {
    watched_.erase(watched);
  }
  const auto watchers = watchers_.find(key);
  std::erase(watchers->second, client);
  if (watchers->second.empty()) {
    watchers_.erase(watchers);
  }
}

std::size_t StoreMap::n_watched(ClientId client) const {
  const auto watched = watched_.find(client);
  return watched == watched_.end() ? 0 : watched->second.size();
}

void StoreMap::forget(ClientId client) {
  cancel(client);
  for (auto watched = watched_.find(client); watched != watched_.end();
       watched = watched_.find(client)) {
    const std::string key = *watched->second.begin();
    unwatch(client, key);
  }
  // The client may have been woken for a queue value that it did not take, so another waiting
  // client is woken.
  for (const auto& [key, values] : queues_) {
    wake_one(key);
  }
}

std::optional<std::string> StoreMap::before(const std::string& key) const {
  const std::string* const value = watchers_.contains(key) ? find(key) : nullptr;
  return value == nullptr ? std::nullopt : std::optional(*value);
}

void StoreMap::tell(const std::string& key, std::optional<std::string> before) {
  const auto watchers = watchers_.find(key);
  if (watchers == watchers_.end()) {
    return;
  }
  const std::string* const value = find(key);
  const auto change = std::make_shared<const KeyChange>(
      KeyChange{.key = key,
                .before = std::move(before),
                .after = value == nullptr ? std::nullopt : std::optional(*value)});
  if (change->before != change->after) {
    for (const ClientId client : watchers->second) {
      news_.push_back({.client = client, .change = change});
    }
  }
}

std::optional<std::int64_t> StoreMap::add_quietly(const std::string& key, std::int64_t delta) {
  const std::optional<std::int64_t> sum = sum_with(key, delta);
  if (!sum) {
    return std::nullopt;
  }
  std::optional<std::string> old = before(key);
  std::string& place = value_at(key);
  std::string text = std::to_string(*sum);
  n_bytes_ += text.size();
  n_bytes_ -= place.size();
  place = std::move(text);
  tell(key, std::move(old));
  return sum;
}

std::string& StoreMap::value_at(const std::string& key) {
  const auto [place, is_new] = values_.try_emplace(key);
  if (is_new) {
    n_bytes_ += key.size() + kNodeBytes;
    place->second = std::make_shared<std::string>();
  } else if (place->second.use_count() > 1) {
    place->second = std::make_shared<std::string>(*place->second);
  }
  return *place->second;
}

bool StoreMap::count_down(ClientId client) {
  const auto found = waits_.find(client);
  if (found == waits_.end() || --found->second.n_missing > 0) {
    return false;
  }
  waits_.erase(found);
  woken_.push_back(client);
  return true;
}

void StoreMap::wake_all(const std::string& key) {
  auto node = waiters_.extract(key);
  if (!node.empty()) {
    for (const ClientId client : node.mapped()) {
      (void)count_down(client);
    }
  }
}

// A client that still waits for other keys does not take the value, so the next client is tried.
void StoreMap::wake_one(const std::string& key) {
  bool is_woken = false;
  for (auto found = waiters_.find(key); found != waiters_.end() && !is_woken;
       found = waiters_.find(key)) {
    const ClientId client = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) {
      waiters_.erase(found);
    }
    is_woken = count_down(client);
  }
}

namespace {

bool has_value(StepKind kind) {
  return kind == StepKind::kSet || kind == StepKind::kAppend || kind == StepKind::kPush;
}

bool is_known(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(StepKind::kSet) &&
         kind <= static_cast<std::uint8_t>(StepKind::kCount);
}

std::optional<MapStep> decode_step(ByteReader& reader) {
  const auto kind = reader.get<std::uint8_t>();
  if (!kind || !is_known(*kind)) {
    return std::nullopt;
  }
  MapStep step{.kind = static_cast<StepKind>(*kind), .key = {}};
  std::optional<std::string> key = reader.get_string(reader.rest().size());
  if (!key) {
    return std::nullopt;
  }
  step.key = std::move(*key);
  if (has_value(step.kind)) {
    std::optional<std::string> value = reader.get_string(reader.rest().size());
    if (!value) {
      return std::nullopt;
    }
    step.value = std::move(*value);
  }
  if (step.kind == StepKind::kCount) {
    const auto world_size = reader.get<std::int64_t>();
    if (!world_size) {
      return std::nullopt;
    }
    step.world_size = *world_size;
  }
  return step;
}

}  // namespace

void apply(StoreMap& map, MapStep step, ClientId client) {
  switch (step.kind) {
    case StepKind::kSet:
      map.set(step.key, std::move(step.value));
      break;
    case StepKind::kAppend:
      map.append(step.key, step.value);
      break;
    case StepKind::kErase:
      map.erase(step.key);
      break;
    case StepKind::kPush:
      map.push(step.key, std::move(step.value));
      break;
    case StepKind::kPop:
      (void)map.pop(step.key);
      break;
    case StepKind::kCount:
      (void)map.barrier(client, step.key, step.world_size);
      map.cancel(kNobody);
      break;
  }
}

std::size_t n_new_bytes(const Change& change) {
  std::size_t n_bytes = 0;
  for (const MapStep& step : change) {
    if (has_value(step.kind) || step.kind == StepKind::kCount) {
      n_bytes += step.key.size() + step.value.size();
    }
  }
  return n_bytes;
}

void encode(ByteWriter& writer, const Change& change) {
  for (const MapStep& step : change) {
    writer.put(static_cast<std::uint8_t>(step.kind));
    writer.put_string(step.key);
    if (has_value(step.kind)) {
      writer.put_string(step.value);
    }
    if (step.kind == StepKind::kCount) {
      writer.put(step.world_size);
    }
  }
}

std::optional<Change> decode_change(std::span<const std::byte> bytes) {
  Change change;
  ByteReader reader(bytes);
  while (!reader.rest().empty()) {
    std::optional<MapStep> step = decode_step(reader);
    if (!step) {
      return std::nullopt;
    }
    change.push_back(std::move(*step));
  }
  return change;
}

}  // namespace unisono::store
