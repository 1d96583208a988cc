#include "unisono/store/subscriptions.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "unisono/base/mutex.h"

namespace unisono::store {

class Subscriptions::Subscription final : public Watch {
 public:
  Subscription(Subscriptions& owner, WatchCallback on_change)
      : owner_(owner), on_change_(std::move(on_change)) {}

  ~Subscription() override { owner_.remove(this); }

  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;
  Subscription(Subscription&&) = delete;
  Subscription& operator=(Subscription&&) = delete;

  void call(const KeyChange& change) const { on_change_(change); }

 private:
  Subscriptions& owner_;
  WatchCallback on_change_;
};

std::unique_ptr<Watch> Subscriptions::add(const std::string& key, WatchCallback on_change) {
  auto subscription = std::make_unique<Subscription>(*this, std::move(on_change));
  const MutexLock lock(mutex_);
  by_key_.emplace(key, subscription.get());
  return subscription;
}

bool Subscriptions::has(const std::string& key) {
  const MutexLock lock(mutex_);
  return by_key_.contains(key);
}

void Subscriptions::tell(const KeyChange& change) {
  std::set<const Subscription*> told;
  while (const Subscription* const next = begin_next(change.key, told)) {
    next->call(change);
    end();
    told.insert(next);
  }
}

const Subscriptions::Subscription* Subscriptions::begin_next(
    const std::string& key, const std::set<const Subscription*>& told) {
  const MutexLock lock(mutex_);
  const auto [begin, end] = by_key_.equal_range(key);
  for (auto entry = begin; entry != end; ++entry) {
    if (!told.contains(entry->second)) {
      running_ = entry->second;
      return running_;
    }
  }
  return nullptr;
}

void Subscriptions::end() {
  const MutexLock lock(mutex_);
  running_ = nullptr;
  ended_.notify_all();
}

void Subscriptions::remove(const Subscription* subscription) {
  const MutexLock lock(mutex_);
  std::erase_if(by_key_, [&](const auto& entry) { return entry.second == subscription; });
  while (running_ == subscription) {
    ended_.wait(mutex_);
  }
}

}  // namespace unisono::store
