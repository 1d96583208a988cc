// Common behavior of all implementations of Store.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/store.h"
#include "unisono/store/testing/stores.h"

namespace unisono::store {
namespace {

using testing::at_once;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::soon;
using testing::StoreKind;
using ::testing::UnorderedElementsAre;
using Keys = std::vector<std::string>;
using Pairs = std::vector<Store::KeyValue>;

class StoreConformance : public ::testing::TestWithParam<StoreKind> {
 protected:
  void TearDown() override {
    EXPECT_FALSE(in_time_.has_passed()) << "something ended only at a deadline";
  }

  [[nodiscard]] std::shared_ptr<Store> open() const { return stores_->open(); }

  [[nodiscard]] std::string quoted(const std::string& key) const {
    return "\"" + stores_->shown(key) + "\"";
  }

  // Runs `body` in `n_threads` threads with separate handles.
  void in_threads(int n_threads, const std::function<void(Store& mine, int thread)>& body) const {
    std::vector<std::thread> threads;
    for (int i = 0; i < n_threads; ++i) {
      threads.emplace_back([this, &body, i] { body(*open(), i); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  // Limit for waits. A wait that is not ended polls once more at its deadline, soon().
  Deadline in_time_ = Deadline::after(std::chrono::seconds(20));
  std::unique_ptr<testing::Stores> stores_ = GetParam().make();
  std::shared_ptr<Store> store_ = open();
};

TEST_P(StoreConformance, ValuesAreAnyBytes) {
  std::string value(100'000, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) {
    value[i] = static_cast<char>(i * 31 + i / 256);
  }
  store_->set("binary", value);
  EXPECT_TRUE(store_->get("binary", soon()) == value);
  EXPECT_TRUE(open()->get("binary", soon()) == value);
  store_->set("", "");
  EXPECT_EQ(store_->get("", soon()), "");
  EXPECT_EQ(store_->try_get(""), "");
  EXPECT_EQ(store_->try_get("missing"), std::nullopt);
}

TEST_P(StoreConformance, EveryCallDoesItsWork) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  EXPECT_EQ(store_->get("n", soon()), "-2");
  store_->append("text", "ab");
  store_->append("text", "c");
  EXPECT_EQ(store_->get("text", soon()), "abc");
  store_->multi_set(Pairs{{"a", "1"}, {"b", "2"}, {"a", "3"}});
  EXPECT_THAT(store_->multi_get(Keys{"b", "a", "b"}, soon()), ElementsAre("2", "3", "2"));
  EXPECT_THAT(store_->multi_get(Keys{}, soon()), IsEmpty());
  EXPECT_TRUE(store_->check(Keys{"a", "b"}));
  EXPECT_FALSE(store_->check(Keys{"a", "c"}));
  EXPECT_TRUE(store_->check(Keys{}));
  store_->wait(Keys{"a", "b"}, at_once());
  store_->wait(Keys{}, at_once());
  EXPECT_EQ(store_->num_keys(), 4);
  EXPECT_THAT(store_->list_keys(), UnorderedElementsAre("n", "text", "a", "b"));
  EXPECT_TRUE(store_->delete_key("a"));
  EXPECT_FALSE(store_->delete_key("a"));
  EXPECT_EQ(store_->num_keys(), 3);
}

TEST_P(StoreConformance, CompareSetFollowsPyTorch) {
  EXPECT_EQ(store_->compare_set("k", "x", "new"), "x") << "missing, something expected";
  EXPECT_EQ(store_->try_get("k"), std::nullopt);
  EXPECT_EQ(store_->compare_set("k", "", "new"), "new") << "missing, nothing expected";
  EXPECT_EQ(store_->compare_set("k", "old", "newer"), "new") << "another value";
  EXPECT_EQ(store_->compare_set("k", "", "newer"), "new") << "another value, nothing expected";
  EXPECT_EQ(store_->compare_set("k", "new", "newer"), "newer") << "the expected value";
  EXPECT_EQ(store_->get("k", soon()), "newer");
}

TEST_P(StoreConformance, OneOfManyWinsACompareSet) {
  std::atomic<int> n_winners = 0;
  in_threads(4, [&](Store& mine, int thread) {
    const std::string name = std::to_string(thread);
    n_winners += mine.compare_set("winner", "", name) == name ? 1 : 0;
  });
  EXPECT_EQ(n_winners.load(), 1);
}

TEST_P(StoreConformance, QueuesAreFirstInFirstOutAndNoKeys) {
  EXPECT_EQ(store_->try_queue_pop("q"), std::nullopt);
  store_->queue_push("q", "1");
  store_->queue_push("q", "");
  EXPECT_EQ(store_->queue_len("q"), 2);
  EXPECT_TRUE(store_->check(Keys{"q"}));
  EXPECT_EQ(store_->num_keys(), 0);
  EXPECT_EQ(store_->queue_pop("q", soon()), "1");
  EXPECT_EQ(store_->try_queue_pop("q"), "");
  EXPECT_EQ(store_->queue_len("q"), 0);
  EXPECT_FALSE(store_->check(Keys{"q"}));
}

TEST_P(StoreConformance, WaitsEndWithWhatOthersDo) {
  const std::vector<std::pair<const char*, std::function<void(Store&)>>> ways{
      {"set", [](Store& other) { other.set("set", ""); }},
      {"add", [](Store& other) { other.add("add", 1); }},
      {"append", [](Store& other) { other.append("append", "x"); }},
      {"compare_set", [](Store& other) { other.compare_set("compare_set", "", "x"); }},
      {"multi_set", [](Store& other) { other.multi_set(Pairs{{"multi_set", ""}}); }},
      {"push", [](Store& other) { other.queue_push("push", "x"); }},
      {"barrier", [](Store& other) { other.barrier("barrier", 1, soon()); }}};
  const auto other = open();
  for (const auto& [key, appear] : ways) {
    std::thread waiting([&, name = key] { store_->wait(Keys{name}, soon()); });
    appear(*other);
    waiting.join();
    EXPECT_TRUE(store_->check(Keys{key})) << key;
  }
}

TEST_P(StoreConformance, ValuesComeWhenAnotherHandleSetsThem) {
  const auto other = open();
  std::thread setter([&] {
    other->set("late", "here");
    other->set("a", "1");
    other->set("b", "2");
    other->queue_push("q", "value");
  });
  EXPECT_EQ(store_->get("late", soon()), "here");
  EXPECT_THAT(store_->multi_get(Keys{"b", "a"}, soon()), ElementsAre("2", "1"));
  EXPECT_EQ(store_->queue_pop("q", soon()), "value");
  setter.join();
}

TEST_P(StoreConformance, TimeoutsNameTheMissingKeysAndTheStoreGoesOn) {
  store_->set("there", "");
  const auto message_of = [&](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      return std::string(error.what());
    }
    ADD_FAILURE() << "no timeout";
    return std::string();
  };
  const std::string get = message_of([&] { (void)store_->get("roster", at_once()); });
  EXPECT_THAT(get, HasSubstr(stores_->name() + ": get: no " + quoted("roster") + " within 0.0 s"));
  const std::string wait =
      message_of([&] { store_->wait(Keys{"there", "lost", "gone"}, at_once()); });
  EXPECT_THAT(wait, HasSubstr("wait: no " + quoted("lost") + ", " + quoted("gone") + " within"));
  EXPECT_THAT(wait, Not(HasSubstr("there")));
  EXPECT_THAT(message_of([&] { (void)store_->multi_get(Keys{"lost"}, at_once()); }),
              HasSubstr("multi_get: no " + quoted("lost")));
  EXPECT_THAT(message_of([&] { (void)store_->queue_pop("q", at_once()); }),
              HasSubstr("queue_pop: no " + quoted("q")));
  EXPECT_THAT(message_of([&] { store_->barrier("b", 2, at_once()); }),
              HasSubstr("barrier " + quoted("b") + ": 1 of 2 came"));

  store_->set("roster", "now");
  EXPECT_EQ(store_->get("roster", soon()), "now");
}

// Available values are returned even after the deadline.
TEST_P(StoreConformance, WhatIsThereTakesNoTime) {
  store_->set("k", "v");
  store_->queue_push("q", "1");
  const Deadline passed = Deadline::after(std::chrono::seconds(0));
  EXPECT_EQ(store_->get("k", passed), "v");
  store_->wait(Keys{"k", "q"}, passed);
  EXPECT_EQ(store_->queue_pop("q", passed), "1");
  store_->barrier("b", 1, passed);
}

TEST_P(StoreConformance, BarrierHoldsUntilAllHaveCome) {
  constexpr int kWorld = 3;
  std::atomic<int> n_arrived = 0;
  in_threads(kWorld, [&](Store& mine, int) {
    for (int round = 1; round <= 5; ++round) {
      ++n_arrived;
      mine.barrier("b" + std::to_string(round), kWorld, soon());
      EXPECT_GE(n_arrived.load(), round * kWorld);
    }
  });
  EXPECT_EQ(store_->get("b1", soon()), "3");
}

TEST_P(StoreConformance, EachQueuedValueGoesToOnePopper) {
  constexpr int kPoppers = 3;
  constexpr int kValues = 30;
  std::vector<std::multiset<std::string>> taken(kPoppers);
  std::thread pusher([&] {
    for (int value = 0; value < kValues; ++value) {
      store_->queue_push("q", std::to_string(value));
    }
  });
  in_threads(kPoppers, [&](Store& mine, int thread) {
    for (int n = 0; n < kValues / kPoppers; ++n) {
      taken[static_cast<std::size_t>(thread)].insert(mine.queue_pop("q", soon()));
    }
  });
  pusher.join();
  std::multiset<std::string> expected;
  std::multiset<std::string> together;
  for (int value = 0; value < kValues; ++value) {
    expected.insert(std::to_string(value));
  }
  for (const auto& some : taken) {
    together.insert(some.begin(), some.end());
  }
  EXPECT_EQ(together, expected);
  EXPECT_EQ(store_->queue_len("q"), 0);
}

TEST_P(StoreConformance, ThreadsMayShareOneHandle) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        store_->add("n", 1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(store_->get("n", soon()), "200");
}

TEST_P(StoreConformance, AddsOfManyHandlesAllCount) {
  in_threads(4, [](Store& mine, int) {
    for (int n = 0; n < 50; ++n) {
      mine.add("n", 1);
    }
  });
  EXPECT_EQ(store_->get("n", soon()), "200");
}

TEST_P(StoreConformance, WhatIsSetTogetherIsSeenTogether) {
  store_->multi_set(Pairs{{"a", "0"}, {"b", "0"}});
  const auto other = open();
  std::thread setter([&] {
    for (int n = 1; n <= 1000; ++n) {
      other->multi_set(Pairs{{"a", std::to_string(n)}, {"b", std::to_string(n)}});
    }
  });
  Keys values;
  do {
    values = store_->multi_get(Keys{"a", "b"}, soon());
    EXPECT_EQ(values[0], values[1]);
  } while (values[0] != "1000" && !HasFailure());
  setter.join();
}

TEST_P(StoreConformance, ToAddToWhatIsNoNumberIsAnErrorAndChangesNothing) {
  for (const std::string& text : {std::string("five"), std::string("5 "), std::string()}) {
    const auto mine = open();
    store_->set("k", text);
    EXPECT_EQ(store_->get("k", soon()), text);
    const std::vector<std::function<void()>> calls{[&] { mine->add("k", 1); },
                                                   [&] { mine->barrier("k", 2, soon()); }};
    for (const auto& call : calls) {
      try {
        call();
        ADD_FAILURE() << "added to '" << text << "'";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(),
                    HasSubstr(quoted("k") + " is not a decimal number: \"" + text + "\""));
      }
    }
    EXPECT_EQ(mine->get("k", soon()), text) << "the store stays usable";
  }
}

TEST_P(StoreConformance, SumsBeyond64BitsAreErrors) {
  const auto mine = open();
  EXPECT_EQ(mine->add("k", INT64_MAX), INT64_MAX);
  EXPECT_THAT([&] { mine->add("k", 1); },
              ::testing::ThrowsMessage<Error>(
                  HasSubstr("add: 1 and the value of " + quoted("k") + ", 9223372036854775807,")));
  EXPECT_EQ(store_->get("k", soon()), std::to_string(INT64_MAX));
}

TEST_P(StoreConformance, WhatIsTooLargeIsRefusedBeforeAnythingIsDone) {
  const std::string large((8 << 20) + 1, 'x');
  EXPECT_THROW(store_->set(std::string(8192, 'k'), ""), Error);
  EXPECT_THROW(store_->set("k", large), Error);
  EXPECT_THROW(store_->compare_set("k", "", large), Error);
  EXPECT_THROW(store_->append("k", large), Error);
  EXPECT_THROW(store_->queue_push("k", large), Error);
  EXPECT_THROW((void)store_->check(Keys(131'073)), Error);
  EXPECT_THROW(store_->multi_set(Pairs(131'073)), Error);
  EXPECT_THROW(store_->multi_set(Pairs{{"a", "1"}, {"k", large}}), Error);
  EXPECT_THROW(store_->multi_set(Pairs(8, {"k", std::string(8 << 20, 'x')})), Error);
  EXPECT_THROW((void)store_->check(Keys(10'000, std::string(8000, 'k'))), Error);
  EXPECT_EQ(store_->num_keys(), 0);
  store_->set(std::string(8000, 'k'), std::string(8 << 20, 'x'));
  EXPECT_EQ(store_->num_keys(), 1) << "the store can still be used";
}

TEST_P(StoreConformance, AppendsDoNotExceedTheLimitTogether) {
  const auto mine = open();
  const std::string full(8 << 20, 'x');
  store_->set("k", full);
  EXPECT_TRUE(store_->get("k", soon()) == full);
  EXPECT_THROW(
      {
        mine->append("k", "y");
        (void)mine->num_keys();  // Appends have no reply of their own on a connection.
      },
      Error);
  EXPECT_TRUE(store_->get("k", soon()) == full);
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         StoreConformance,
                         ::testing::ValuesIn(testing::all_kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Compares random operations of three handles with a map that is simple enough to be correct.
class Random : public ::testing::TestWithParam<std::tuple<StoreKind, std::uint32_t>> {
 protected:
  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

  std::string key() { return "k" + std::to_string(below(6)); }

  std::string value() { return std::string(below(40), static_cast<char>(below(256))); }

  // After the reply to the next request, a request without a reply has taken effect for all
  // clients.
  void settle(Store& store) { EXPECT_EQ(store.num_keys(), static_cast<std::int64_t>(map_.size())); }

  void change(Store& store) {
    const std::string k = key();
    switch (below(6)) {
      case 0:
        store.set(k, map_[k] = value());
        break;
      case 1: {
        const std::string more = value();
        store.append(k, more);
        map_[k] += more;
        break;
      }
      case 2:
        EXPECT_EQ(store.delete_key(k), map_.erase(k) == 1);
        break;
      case 3: {
        std::vector<Store::KeyValue> pairs;
        for (std::size_t n = below(4); n > 0; --n) {
          pairs.emplace_back(key(), value());
          map_[pairs.back().first] = pairs.back().second;
        }
        store.multi_set(pairs);
        break;
      }
      case 4: {
        const auto delta = static_cast<std::int64_t>(below(100)) - 50;
        number_ += delta;
        EXPECT_EQ(store.add("number", delta), number_);
        map_["number"] = std::to_string(number_);
        break;
      }
      default:
        compare_set(store, k);
        break;
    }
    settle(store);
  }

  void compare_set(Store& store, const std::string& k) {
    const bool is_there = map_.contains(k);
    const std::string expected = below(2) == 0 && is_there ? map_[k] : value();
    const std::string desired = value();
    const bool is_match = is_there ? map_[k] == expected : expected.empty();
    if (is_match) {
      map_[k] = desired;
    }
    const std::string reply = is_match ? desired : is_there ? map_[k] : expected;
    EXPECT_EQ(store.compare_set(k, expected, desired), reply);
  }

  void change_queue(Store& store) {
    std::deque<std::string>& queue = queues_["q" + std::to_string(below(2))];
    const std::string name = &queue == &queues_["q0"] ? "q0" : "q1";
    if (below(2) == 0) {
      queue.push_back(value());
      store.queue_push(name, queue.back());
    } else {
      std::optional<std::string> expected;
      if (!queue.empty()) {
        expected = queue.front();
        queue.pop_front();
      }
      EXPECT_EQ(store.try_queue_pop(name), expected);
    }
    EXPECT_EQ(store.queue_len(name), static_cast<std::int64_t>(queue.size()));
  }

  void look(Store& store) {
    const std::string k = key();
    const auto found = map_.find(k);
    EXPECT_EQ(store.try_get(k), found == map_.end() ? std::nullopt : std::optional(found->second));
    Keys keys;
    Keys values;
    for (const auto& [name, content] : map_) {
      keys.push_back(name);
      values.push_back(content);
    }
    EXPECT_THAT(store.list_keys(), ::testing::UnorderedElementsAreArray(keys));
    EXPECT_EQ(store.multi_get(keys, soon()), values);
    EXPECT_EQ(store.check(Keys{k, "number"}), map_.contains(k) && map_.contains("number"));
  }

  std::mt19937 random_{std::get<1>(GetParam())};
  std::map<std::string, std::string> map_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::int64_t number_ = 0;
};

TEST_P(Random, ThreeHandlesSeeWhatAMapWouldHold) {
  const std::unique_ptr<testing::Stores> stores = std::get<0>(GetParam()).make();
  std::vector<std::shared_ptr<Store>> handles;
  for (int i = 0; i < 3; ++i) {
    handles.push_back(stores->open());
  }
  for (int step = 0; step < 600 && !HasFailure(); ++step) {
    Store& store = *handles[below(handles.size())];
    switch (below(4)) {
      case 0:
        look(store);
        break;
      case 1:
        change_queue(store);
        break;
      default:
        change(store);
        break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds,
                         Random,
                         ::testing::Combine(::testing::ValuesIn(testing::all_kinds()),
                                            ::testing::Range(1U, 6U)),
                         [](const auto& parameters) {
                           return std::get<0>(parameters.param).name +
                                  std::to_string(std::get<1>(parameters.param));
                         });

TEST(PrefixStore, PrefixesDoNotMeet) {
  const auto whole = std::make_shared<HashStore>();
  PrefixStore left("left", whole);
  PrefixStore right("right", whole);
  left.set("k", "1");
  right.set("k", "2");
  whole->set("lefthanded", "3");
  EXPECT_EQ(left.get("k", soon()), "1");
  EXPECT_EQ(whole->get("right/k", soon()), "2");
  EXPECT_THAT(left.list_keys(), ElementsAre("k"));
  EXPECT_THAT(whole->list_keys(), UnorderedElementsAre("left/k", "right/k", "lefthanded"));
  EXPECT_EQ(left.num_keys(), 3) << "as PyTorch counts";
  EXPECT_TRUE(left.delete_key("k"));
  EXPECT_EQ(left.try_get("k"), std::nullopt);
  EXPECT_EQ(right.try_get("k"), "2");
}

TEST(PrefixStore, TheInnermostPrefixIsOutermostInTheKey) {
  const auto whole = std::make_shared<HashStore>();
  PrefixStore nested("b", std::make_shared<PrefixStore>("a", whole));
  nested.set("k", "v");
  EXPECT_THAT(whole->list_keys(), ElementsAre("a/b/k"));
  EXPECT_THAT(nested.list_keys(), ElementsAre("k"));
}

TEST(PrefixStore, OfNoStoreIsRefused) {
  EXPECT_THROW(PrefixStore("p", nullptr), Error);
}

}  // namespace
}  // namespace unisono::store
