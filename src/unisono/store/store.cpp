#include "unisono/store/store.h"

#include <utility>

#include "unisono/base/error.h"

namespace unisono::store {

PrefixStore::PrefixStore(const std::string& prefix, std::shared_ptr<Store> store)
    : prefix_(prefix + "/"), store_(std::move(store)) {
  if (store_ == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "prefix \"" + prefix + "\": the store is null");
  }
}

PrefixStore::~PrefixStore() = default;

void PrefixStore::set(const std::string& key, const std::string& value) {
  store_->set(whole(key), value);
}

std::string PrefixStore::get(const std::string& key, Deadline deadline) {
  return store_->get(whole(key), deadline);
}

std::optional<std::string> PrefixStore::try_get(const std::string& key) {
  return store_->try_get(whole(key));
}

std::int64_t PrefixStore::add(const std::string& key, std::int64_t delta) {
  return store_->add(whole(key), delta);
}

void PrefixStore::append(const std::string& key, const std::string& value) {
  store_->append(whole(key), value);
}

bool PrefixStore::check(std::span<const std::string> keys) {
  return store_->check(whole(keys));
}

void PrefixStore::wait(std::span<const std::string> keys, Deadline deadline) {
  store_->wait(whole(keys), deadline);
}

std::string PrefixStore::compare_set(const std::string& key,
                                     const std::string& expected,
                                     const std::string& desired) {
  return store_->compare_set(whole(key), expected, desired);
}

bool PrefixStore::delete_key(const std::string& key) {
  return store_->delete_key(whole(key));
}

std::int64_t PrefixStore::num_keys() {
  return store_->num_keys();
}

std::vector<std::string> PrefixStore::list_keys() {
  std::vector<std::string> keys;
  for (const std::string& key : store_->list_keys()) {
    if (key.starts_with(prefix_)) {
      keys.push_back(key.substr(prefix_.size()));
    }
  }
  return keys;
}

std::vector<std::string> PrefixStore::multi_get(std::span<const std::string> keys,
                                                Deadline deadline) {
  return store_->multi_get(whole(keys), deadline);
}

void PrefixStore::multi_set(std::span<const KeyValue> pairs) {
  std::vector<KeyValue> whole_pairs;
  whole_pairs.reserve(pairs.size());
  for (const auto& [key, value] : pairs) {
    whole_pairs.emplace_back(whole(key), value);
  }
  store_->multi_set(whole_pairs);
}

void PrefixStore::queue_push(const std::string& key, const std::string& value) {
  store_->queue_push(whole(key), value);
}

std::string PrefixStore::queue_pop(const std::string& key, Deadline deadline) {
  return store_->queue_pop(whole(key), deadline);
}

std::optional<std::string> PrefixStore::try_queue_pop(const std::string& key) {
  return store_->try_queue_pop(whole(key));
}

std::int64_t PrefixStore::queue_len(const std::string& key) {
  return store_->queue_len(whole(key));
}

void PrefixStore::barrier(const std::string& key, std::int64_t world_size, Deadline deadline) {
  store_->barrier(whole(key), world_size, deadline);
}

std::unique_ptr<Watch> PrefixStore::watch(const std::string& key, WatchCallback on_change) {
  return store_->watch(whole(key),
                       [key, on_change = std::move(on_change)](const KeyChange& change) {
                         on_change({.key = key, .before = change.before, .after = change.after});
                       });
}

void PrefixStore::set_at_end(const std::string& key, const std::string& value) {
  store_->set_at_end(whole(key), value);
}

std::string PrefixStore::whole(const std::string& key) const {
  return prefix_ + key;
}

std::vector<std::string> PrefixStore::whole(std::span<const std::string> keys) const {
  std::vector<std::string> whole_keys;
  whole_keys.reserve(keys.size());
  for (const std::string& key : keys) {
    whole_keys.push_back(whole(key));
  }
  return whole_keys;
}

}  // namespace unisono::store
