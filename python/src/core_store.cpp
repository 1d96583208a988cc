#include "core_store.h"

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

#include "bytes.h"
#include "errors.h"

namespace unisono::python {
namespace {

using std::chrono::milliseconds;

// Gives access to the prefix, which c10d::PrefixStore does not expose.
struct PrefixReader : c10d::PrefixStore {
  static const std::string& read(const c10d::PrefixStore& store) {
    return store.*(&PrefixReader::prefix_);
  }
};

// Members are destroyed in reverse order: the store's connection ends before its server.
struct Kept {
  std::shared_ptr<store::TcpStoreHost> host;
  std::shared_ptr<store::Store> store;
};

void check_timeout(milliseconds timeout) {
  if (timeout < milliseconds::zero()) {
    throw Error(ErrorCode::kInvalidArgument,
                "unisono.Store: a timeout of " + std::to_string(timeout.count()) + " ms");
  }
}

// Returns the deadline for a timeout; 0 means no limit, as in PyTorch.
Deadline deadline_of(milliseconds timeout) {
  check_timeout(timeout);
  return timeout == c10d::Store::kNoTimeout ? Deadline::never() : Deadline::after(timeout);
}

}  // namespace

StoreAccess access_of(rendezvous::StoreSession session) {
  const std::shared_ptr<store::TcpStoreHost> host = std::move(session.host);
  const auto keep = [host](std::shared_ptr<store::Store> store) {
    const auto both = std::make_shared<Kept>(Kept{.host = host, .store = std::move(store)});
    return std::shared_ptr<store::Store>(both, both->store.get());
  };
  return {.store = keep(std::move(session.store)),
          .connect_again = [keep, connect_again = std::move(session.connect_again)](
                               milliseconds timeout) { return keep(connect_again(timeout)); },
          .secret = std::move(session.secret),
          .local_ip = std::move(session.local_ip),
          .fd = session.store_fd,
          .host = std::move(session.launch_info.master_addr),
          .port = session.launch_info.master_port};
}

StoreAccess in_part(const StoreAccess& access, const std::string& prefix) {
  StoreAccess part = access;
  part.store = std::make_shared<store::PrefixStore>(prefix, access.store);
  part.connect_again = [prefix, connect_again = access.connect_again](milliseconds timeout) {
    return std::make_shared<store::PrefixStore>(prefix, connect_again(timeout));
  };
  return part;
}

std::optional<StoreAccess> find_access(c10::intrusive_ptr<c10d::Store> store) {
  std::vector<std::string> prefixes;
  while (auto* const part = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    prefixes.push_back(PrefixReader::read(*part));
    store = part->getUnderlyingStore();
  }
  const auto* const core = dynamic_cast<const CoreStore*>(store.get());
  if (core == nullptr) {
    return std::nullopt;
  }
  StoreAccess access = core->access();
  for (auto prefix = prefixes.rbegin(); prefix != prefixes.rend(); ++prefix) {
    access = in_part(access, *prefix);
  }
  return access;
}

CoreStore::CoreStore(StoreAccess access, milliseconds timeout)
    : c10d::Store(timeout), pid_(::getpid()), access_(std::move(access)) {}

CoreStore::~CoreStore() {
  if (::getpid() != pid_) {
    // A child of fork() has no threads to join, and the connection belongs to the parent.
    new StoreAccess(std::move(access_));
  }
}

c10::intrusive_ptr<c10d::Store> CoreStore::clone() {
  return with_store_errors([&] {
    StoreAccess access = access_;
    access.store = access_.connect_again(timeout_);
    access.fd = -1;  // The clone uses another connection.
    return c10::make_intrusive<CoreStore>(std::move(access), timeout_);
  });
}

void CoreStore::set(const std::string& key, const Bytes& value) {
  with_store_errors([&] { access_.store->set(key, text_of(value)); });
}

Bytes CoreStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  return with_store_errors([&] {
    return bytes_of(access_.store->compare_set(key, text_of(expected), text_of(desired)));
  });
}

Bytes CoreStore::get(const std::string& key) {
  return with_store_errors(
      [&] { return bytes_of(access_.store->get(key, deadline_of(timeout_))); });
}

std::int64_t CoreStore::add(const std::string& key, std::int64_t delta) {
  return with_store_errors([&] { return access_.store->add(key, delta); });
}

bool CoreStore::deleteKey(const std::string& key) {
  return with_store_errors([&] { return access_.store->delete_key(key); });
}

bool CoreStore::check(const std::vector<std::string>& keys) {
  return with_store_errors([&] { return access_.store->check(keys); });
}

std::int64_t CoreStore::getNumKeys() {
  return with_store_errors([&] { return access_.store->num_keys(); });
}

void CoreStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void CoreStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  with_store_errors([&] { access_.store->wait(keys, deadline_of(timeout)); });
}

void CoreStore::setTimeout(const milliseconds& timeout) {
  with_store_errors([&] { check_timeout(timeout); });
  timeout_ = timeout;
}

void CoreStore::append(const std::string& key, const Bytes& value) {
  with_store_errors([&] { access_.store->append(key, text_of(value)); });
}

std::vector<Bytes> CoreStore::multiGet(const std::vector<std::string>& keys) {
  return with_store_errors([&] {
    std::vector<Bytes> values;
    for (const std::string& value : access_.store->multi_get(keys, deadline_of(timeout_))) {
      values.push_back(bytes_of(value));
    }
    return values;
  });
}

void CoreStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  with_store_errors([&] {
    if (keys.size() != values.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "unisono.Store: multi_set of " + std::to_string(keys.size()) + " keys and " +
                      std::to_string(values.size()) + " values");
    }
    std::vector<store::Store::KeyValue> pairs;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      pairs.emplace_back(keys[i], text_of(values[i]));
    }
    access_.store->multi_set(pairs);
  });
}

void CoreStore::queuePush(const std::string& key, const Bytes& value) {
  with_store_errors([&] { access_.store->queue_push(key, text_of(value)); });
}

Bytes CoreStore::queuePop(const std::string& key, bool block) {
  return with_store_errors([&] {
    if (block) {
      return bytes_of(access_.store->queue_pop(key, deadline_of(timeout_)));
    }
    const std::optional<std::string> value = access_.store->try_queue_pop(key);
    if (!value) {
      C10_THROW_ERROR(DistQueueEmptyError, "unisono.Store: the queue \"" + key + "\" is empty");
    }
    return bytes_of(*value);
  });
}

std::int64_t CoreStore::queueLen(const std::string& key) {
  return with_store_errors([&] { return access_.store->queue_len(key); });
}

std::vector<std::string> CoreStore::listKeys() {
  return with_store_errors([&] { return access_.store->list_keys(); });
}

void CoreStore::barrier(const std::string& key,
                        std::int64_t world_size,
                        const milliseconds& timeout) {
  with_store_errors([&] {
    if (world_size < 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  "unisono.Store: barrier \"" + key + "\" of " + std::to_string(world_size));
    }
    access_.store->barrier(key, world_size, deadline_of(timeout));
  });
}

}  // namespace unisono::python
