// Watches with every implementation of Store.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/testing/stores.h"

namespace unisono::store {
namespace {

using ::testing::ElementsAre;
using testing::soon;
using testing::StoreKind;

// The changes that a watch has reported.
class Changes {
 public:
  WatchCallback callback() {
    return [this](const KeyChange& change) {
      {
        const MutexLock lock(mutex_);
        changes_.push_back(change);
      }
      came_.notify_all();
    };
  }

  // Waits for `n` changes and returns the changes.
  std::vector<KeyChange> first(std::size_t n) {
    const Deadline deadline = soon();
    const MutexLock lock(mutex_);
    while (changes_.size() < n && came_.wait_until(mutex_, deadline.time())) {
    }
    EXPECT_GE(changes_.size(), n);
    return changes_;
  }

 private:
  Mutex mutex_;
  Condition came_;
  std::vector<KeyChange> changes_ UNISONO_GUARDED_BY(mutex_);
};

KeyChange change(std::optional<std::string> before, std::optional<std::string> after) {
  return {.key = "k", .before = std::move(before), .after = std::move(after)};
}

class StoreWatch : public ::testing::TestWithParam<StoreKind> {
 protected:
  std::unique_ptr<testing::Stores> stores_ = GetParam().make();
  std::shared_ptr<Store> store_ = stores_->open();
  std::shared_ptr<Store> other_ = stores_->open();
};

TEST_P(StoreWatch, TellsOfEachValueBeforeAndAfter) {
  Changes changes;
  const auto watch = store_->watch("k", changes.callback());
  other_->set("k", "1");
  EXPECT_THAT(changes.first(1), ElementsAre(change(std::nullopt, "1")));
  other_->set("another", "x");
  other_->set("k", "2");
  (void)changes.first(2);
  EXPECT_TRUE(other_->delete_key("k"));
  EXPECT_THAT(changes.first(3),
              ElementsAre(change(std::nullopt, "1"), change("1", "2"), change("2", std::nullopt)));
}

TEST_P(StoreWatch, BeginsWithWhatIsThere) {
  store_->set("k", "old");
  EXPECT_EQ(store_->get("k", soon()), "old");
  Changes changes;
  const auto watch = store_->watch("k", changes.callback());
  other_->append("k", "er");
  EXPECT_THAT(changes.first(1), ElementsAre(change("old", "older")));
}

TEST_P(StoreWatch, TellsNothingAfterItsEnd) {
  Changes ended;
  Changes changes;
  auto ending = store_->watch("k", ended.callback());
  const auto watch = store_->watch("k", changes.callback());
  other_->set("k", "1");
  (void)ended.first(1);
  (void)changes.first(1);
  ending.reset();
  other_->set("k", "2");
  (void)changes.first(2);
  EXPECT_EQ(ended.first(1).size(), 1U);
}

TEST_P(StoreWatch, ItsEndWaitsForACallbackThatRuns) {
  testing::Event has_begun;
  testing::Event may_end;
  std::atomic<bool> has_ended = false;
  auto watch = store_->watch("k", [&](const KeyChange&) {
    has_begun.set();
    EXPECT_TRUE(may_end.wait(soon()));
    has_ended = true;
  });
  other_->set("k", "1");
  EXPECT_TRUE(has_begun.wait(soon()));
  std::thread ender([&] {
    watch.reset();
    EXPECT_TRUE(has_ended.load());
  });
  // Long enough to detect an end that does not wait.
  for (int i = 0; i < 1000; ++i) {
    std::this_thread::yield();
  }
  may_end.set();
  ender.join();
}

TEST_P(StoreWatch, ACallbackMayUseTheStore) {
  const auto watch =
      store_->watch("k", [&](const KeyChange& change) { store_->set("echo", *change.after); });
  other_->set("k", "v");
  EXPECT_EQ(other_->get("echo", soon()), "v");
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         StoreWatch,
                         ::testing::ValuesIn(testing::all_kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// The callback is slower than the changes: all changes arrive in order, including changes of other
// keys.
TEST(HashStore, AWatchTellsOfEveryChange) {
  HashStore store;
  Changes changes;
  testing::Event may_run;
  const WatchCallback record = changes.callback();
  const WatchCallback slowly = [&](const KeyChange& change) {
    EXPECT_TRUE(may_run.wait(soon()));
    record(change);
  };
  const auto watch = store.watch("k", slowly);
  const auto another = store.watch("n", slowly);
  store.set("k", "1");
  store.set("k", "1");
  store.add("n", 5);
  store.append("k", "2");
  EXPECT_EQ(store.compare_set("k", "12", "3"), "3");
  store.multi_set(std::vector<Store::KeyValue>{{"k", "4"}, {"k", "5"}});
  store.queue_push("k", "no value");
  EXPECT_TRUE(store.delete_key("k"));
  store.barrier("k", 1, soon());
  may_run.set();
  EXPECT_THAT(changes.first(8),
              ElementsAre(change(std::nullopt, "1"),
                          KeyChange{.key = "n", .before = std::nullopt, .after = "5"},
                          change("1", "12"),
                          change("12", "3"),
                          change("3", "4"),
                          change("4", "5"),
                          change("5", std::nullopt),
                          change(std::nullopt, "1")));
}

TEST(HashStore, AWatchThatIsFarBehindGetsTheLastChangesAsOne) {
  HashStore store;
  Changes changes;
  testing::Event has_begun;
  testing::Event may_run;
  const WatchCallback record = changes.callback();
  const auto watch = store.watch("k", [&](const KeyChange& change) {
    has_begun.set();
    EXPECT_TRUE(may_run.wait(soon()));
    record(change);
  });
  store.add("k", 1);
  EXPECT_TRUE(has_begun.wait(soon()));
  for (int n = 2; n <= 70'000; ++n) {
    store.add("k", 1);
  }
  may_run.set();
  // One change is in progress, and 65536 changes are queued.
  EXPECT_EQ(changes.first(65'537).back(), change("65536", "70000"));
}

TEST(HashStore, KeepsToItsLimitInAll) {
  HashStore store({.max_store_bytes = 10'000});
  store.set("k", std::string(9'000, 'x'));
  EXPECT_THROW(store.set("another", std::string(1'000, 'x')), Error);
  EXPECT_EQ(store.try_get("another"), std::nullopt);
  EXPECT_TRUE(store.delete_key("k"));
  store.set("another", std::string(1'000, 'x'));
}

using std::chrono::milliseconds;
using std::chrono::seconds;

using TcpWatch = testing::ServedStore;

// Watches of keys in a store behind our server, which pushes changes.

// The changes that a watch has reported, in order.
class Seen {
 public:
  WatchCallback callback() {
    return [this](const KeyChange& change) {
      const std::lock_guard lock(mutex_);
      changes_.push_back(change);
      changed_.notify_all();
    };
  }

  std::vector<KeyChange> wait_for(std::size_t n) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(30), [&] { return changes_.size() >= n; }));
    return changes_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<KeyChange> changes_;
};

TEST_P(TcpWatch, EveryWatcherSeesEachChangeOfItsKey) {
  const auto setter = connect();
  setter->set("k", "old");
  std::array<Seen, 3> seen;
  std::array<std::unique_ptr<TcpStore>, 3> stores;
  std::array<std::unique_ptr<Watch>, 3> watches;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    stores[i] = connect();
    watches[i] = stores[i]->watch("k", seen[i].callback());
  }
  setter->set("unrelated", "1");
  setter->set("k", "new");
  setter->delete_key("k");
  setter->add("k", 3);
  for (Seen& each : seen) {
    EXPECT_THAT(each.wait_for(3),
                ElementsAre(KeyChange{.key = "k", .before = "old", .after = "new"},
                            KeyChange{.key = "k", .before = "new", .after = std::nullopt},
                            KeyChange{.key = "k", .before = std::nullopt, .after = "3"}));
  }
}

TEST_P(TcpWatch, WatchersAreToldWithinATenthOfASecond) {
  const auto store = connect();
  const auto setter = connect();
  Seen seen;
  const auto watch = store->watch("k", seen.callback());
  std::chrono::steady_clock::duration least = seconds(30);
  for (std::size_t round = 1; round <= 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    setter->set("k", std::to_string(round));
    (void)seen.wait_for(round);
    least = std::min(least, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(least, milliseconds(100));
}

TEST_P(TcpWatch, WatchingInALostStoreIsAnError) {
  const auto store = connect();
  Seen seen;
  const auto watch = store->watch("k", seen.callback());
  host_.reset();
  EXPECT_THROW((void)store->watch("other", seen.callback()), Error);
}

INSTANTIATE_TEST_SUITE_P(Secrets,
                         TcpWatch,
                         ::testing::Values("", "secret"),
                         [](const auto& secret) {
                           return std::string(*secret.param == '\0' ? "Plain" : "Hello");
                         });

}  // namespace
}  // namespace unisono::store
