// Keys that are watched in a store behind our server, which pushes what changes.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/testing/tcp.h"
#include "unisono/store/watch.h"

namespace unisono::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

using TcpWatch = testing::ServedStore;

// What a watch saw, one after the other.
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
