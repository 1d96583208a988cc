#include "c10d_store.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/store/store.h"
#include "unisono/store/watch_dispatcher.h"

#include "bytes.h"

namespace unisono::python {
namespace {

// c10d's waits interpret 0 as no limit.
constexpr std::chrono::milliseconds kShortestWait{1};
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

std::vector<std::string> list_of(std::span<const std::string> keys) {
  return {keys.begin(), keys.end()};
}

std::string joined(std::span<const std::string> keys) {
  std::string text;
  for (const std::string& key : keys) {
    text += (text.empty() ? "'" : ", '") + key + "'";
  }
  return text;
}

std::chrono::milliseconds wait_of(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<std::chrono::nanoseconds>(deadline.remaining(), kLongestWait));
  return std::max(left, kShortestWait);
}

[[noreturn]] void fail(ErrorCode code, const std::string& what, const std::string& reason) {
  throw Error(code, "the store given to torch.distributed: " + what + ": " + reason);
}

// Calls a function of the wrapped store and translates errors. `what` describes the call in
// messages.
template <class Function>
auto call(const std::string& what, Deadline deadline, Function&& function) {
  try {
    return function();
  } catch (const c10::NotImplementedError&) {
    fail(ErrorCode::kInvalidArgument, what, "this kind of store can't do that");
  } catch (const c10::Error& error) {
    fail(deadline.has_passed() ? ErrorCode::kTimeout : ErrorCode::kPeerLost,
         what,
         error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(deadline.has_passed() ? ErrorCode::kTimeout : ErrorCode::kPeerLost, what, error.what());
  }
}

template <class Function>
auto call(const std::string& what, Function&& function) {
  return call(what, Deadline::never(), std::forward<Function>(function));
}

std::string name(const char* operation, const std::string& key) {
  return std::string(operation) + " '" + key + "'";
}

}  // namespace

std::shared_ptr<store::Store> C10dStore::clone_of(const c10::intrusive_ptr<c10d::Store>& store,
                                                  std::chrono::milliseconds timeout) {
  return call("clone", [&] {
    const c10::intrusive_ptr<c10d::Store> clone = store->clone();
    if (clone != store) {
      clone->setTimeout(timeout);
    }
    return std::make_shared<C10dStore>(clone);
  });
}

void C10dStore::set(const std::string& key, const std::string& value) {
  call(name("set", key), [&] { store_->set(key, bytes_of(value)); });
}

std::string C10dStore::get(const std::string& key, Deadline deadline) {
  wait(std::span(&key, 1), deadline);
  return call(name("get", key), [&] { return text_of(store_->get(key)); });
}

std::optional<std::string> C10dStore::try_get(const std::string& key) {
  if (!check(std::span(&key, 1))) {
    return std::nullopt;
  }
  return call(name("get", key), [&] { return text_of(store_->get(key)); });
}

std::int64_t C10dStore::add(const std::string& key, std::int64_t delta) {
  return call(name("add", key), [&] { return store_->add(key, delta); });
}

void C10dStore::append(const std::string& key, const std::string& value) {
  if (store_->hasExtendedApi()) {
    call(name("append", key), [&] { store_->append(key, bytes_of(value)); });
    return;
  }
  std::string before = try_get(key).value_or("");
  while (true) {
    const std::string after = compare_set(key, before, before + value);
    if (after == before + value) {
      return;
    }
    before = after;
  }
}

bool C10dStore::check(std::span<const std::string> keys) {
  return call("check " + joined(keys), [&] { return store_->check(list_of(keys)); });
}

void C10dStore::wait(std::span<const std::string> keys, Deadline deadline) {
  call("wait for " + joined(keys), deadline, [&] {
    store_->wait(list_of(keys), wait_of(deadline));
  });
}

std::string C10dStore::compare_set(const std::string& key,
                                   const std::string& expected,
                                   const std::string& desired) {
  return call(name("compare_set", key), [&] {
    return text_of(store_->compareSet(key, bytes_of(expected), bytes_of(desired)));
  });
}

bool C10dStore::delete_key(const std::string& key) {
  return call(name("delete_key", key), [&] { return store_->deleteKey(key); });
}

std::int64_t C10dStore::num_keys() {
  return call("num_keys", [&] { return store_->getNumKeys(); });
}

std::vector<std::string> C10dStore::list_keys() {
  return call("list_keys", [&] { return store_->listKeys(); });
}

std::vector<std::string> C10dStore::multi_get(std::span<const std::string> keys,
                                              Deadline deadline) {
  wait(keys, deadline);
  return call("multi_get " + joined(keys), [&] {
    std::vector<std::string> values;
    if (store_->hasExtendedApi()) {
      for (const Bytes& value : store_->multiGet(list_of(keys))) {
        values.push_back(text_of(value));
      }
    } else {
      for (const std::string& key : keys) {
        values.push_back(text_of(store_->get(key)));
      }
    }
    return values;
  });
}

void C10dStore::multi_set(std::span<const KeyValue> pairs) {
  std::vector<std::string> keys;
  std::vector<Bytes> values;
  for (const auto& [key, value] : pairs) {
    keys.push_back(key);
    values.push_back(bytes_of(value));
  }
  call("multi_set " + joined(keys), [&] {
    if (store_->hasExtendedApi()) {
      store_->multiSet(keys, values);
      return;
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      store_->set(keys[i], values[i]);
    }
  });
}

void C10dStore::queue_push(const std::string& key, const std::string& value) {
  call(name("queue_push", key), [&] { store_->queuePush(key, bytes_of(value)); });
}

std::string C10dStore::queue_pop(const std::string& key, Deadline deadline) {
  // c10d's blocking form uses the store's own timeout, and another client may remove the value
  // between the wait and the pop.
  while (true) {
    wait(std::span(&key, 1), deadline);
    if (std::optional<std::string> value = try_queue_pop(key)) {
      return *std::move(value);
    }
  }
}

std::optional<std::string> C10dStore::try_queue_pop(const std::string& key) {
  return call(name("queue_pop", key), [&]() -> std::optional<std::string> {
    try {
      return text_of(store_->queuePop(key, false));
    } catch (const c10::DistQueueEmptyError&) {
      return std::nullopt;
    }
  });
}

std::int64_t C10dStore::queue_len(const std::string& key) {
  return call(name("queue_len", key), [&] { return store_->queueLen(key); });
}

void C10dStore::barrier(const std::string& key, std::int64_t world_size, Deadline deadline) {
  const std::string last = key + "/all";
  if (add(key + "/arrived", 1) == world_size) {
    set(last, "1");
  }
  wait(std::span(&last, 1), deadline);
}

std::unique_ptr<store::Watch> C10dStore::watch(const std::string& key,
                                               store::WatchCallback on_change) {
  return std::make_unique<store::PollingWatch>(*this, key, std::move(on_change));
}

}  // namespace unisono::python
