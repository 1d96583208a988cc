// Random operations of three handles against a map that is simple enough to be right.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/store/store.h"
#include "unisono/store/testing/stores.h"

namespace unisono::store {
namespace {

using testing::soon;
using testing::StoreKind;
using Keys = std::vector<std::string>;

class Random : public ::testing::TestWithParam<std::tuple<StoreKind, std::uint32_t>> {
 protected:
  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

  std::string key() { return "k" + std::to_string(below(6)); }

  std::string value() { return std::string(below(40), static_cast<char>(below(256))); }

  // A request without a reply has happened, for other clients too, once the next one is answered.
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

}  // namespace
}  // namespace unisono::store
