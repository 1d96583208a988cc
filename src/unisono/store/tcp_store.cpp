#include "unisono/store/tcp_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/net/socket.h"
#include "unisono/store/protocol.h"
#include "unisono/store/refusals.h"
#include "unisono/store/store_channel.h"
#include "unisono/store/store_connection.h"
#include "unisono/store/timed_mutex.h"
#include "unisono/store/watch_dispatcher.h"

namespace unisono::store {
namespace {

std::span<const std::string> as_span(const std::string& key) {
  return {&key, 1};
}

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options, Deadline deadline)
    : options_(options),
      connection_(std::make_unique<StoreConnection>(options, deadline)),
      watch_mutex_(std::make_unique<TimedMutex>()) {}

TcpStore::~TcpStore() = default;

void TcpStore::set(const std::string& key, const std::string& value) {
  check_sizes(options_.limits, key, value.size());
  connection_->request(begin(Opcode::kSet, key, value), nullptr);
}

std::string TcpStore::get(const std::string& key, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(options_.limits, key, 0);
  std::string value;
  const bool is_there = connection_->wait_and_read(
      begin(Opcode::kWait, as_span(key)),
      begin(Opcode::kGet, key),
      deadline,
      [&](StoreChannel& channel) { value = channel.read_string(connection_->io_deadline()); });
  if (!is_there) {
    throw_missing("get", as_span(key), start);
  }
  return value;
}

// An older PyTorch server closes the connection when a missing key is requested.
std::optional<std::string> TcpStore::try_get(const std::string& key) {
  check_sizes(options_.limits, key, 0);
  if (connection_->is_plain() && !check(as_span(key))) {
    return std::nullopt;
  }
  ByteWriter message;
  if (!connection_->is_plain()) {
    message = begin(Opcode::kCheck, as_span(key));
  }
  message.put_raw(begin(Opcode::kGet, key).bytes());
  std::optional<std::string> value;
  connection_->request(message, [&](StoreChannel& channel) {
    const bool is_there =
        connection_->is_plain() || channel.read_u8(connection_->io_deadline()) ==
                                       static_cast<std::uint8_t>(CheckReply::kReady);
    if (!connection_->is_plain()) {
      channel.begin_reply(connection_->io_deadline());
    }
    std::string text = channel.read_string(connection_->io_deadline());
    if (is_there) {
      value = std::move(text);
    }
  });
  return value;
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t delta) {
  check_sizes(options_.limits, key, 0);
  std::int64_t sum = 0;
  connection_->request(begin(Opcode::kAdd, key, delta), [&](StoreChannel& channel) {
    sum = channel.read_i64(connection_->io_deadline());
  });
  return sum;
}

void TcpStore::append(const std::string& key, const std::string& value) {
  check_sizes(options_.limits, key, value.size());
  connection_->request(begin(Opcode::kAppend, key, value), nullptr);
}

bool TcpStore::check(std::span<const std::string> keys) {
  check_sizes(options_.limits, keys);
  std::uint8_t reply = 0;
  connection_->request(begin(Opcode::kCheck, keys), [&](StoreChannel& channel) {
    reply = channel.read_u8(connection_->io_deadline());
  });
  return reply == static_cast<std::uint8_t>(CheckReply::kReady);
}

void TcpStore::wait(std::span<const std::string> keys, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(options_.limits, keys);
  if (!connection_->wait_and_read(begin(Opcode::kWait, keys), {}, deadline, nullptr)) {
    throw_missing("wait", keys, start);
  }
}

std::string TcpStore::compare_set(const std::string& key,
                                  const std::string& expected,
                                  const std::string& desired) {
  check_sizes(options_.limits, key, std::max(expected.size(), desired.size()));
  ByteWriter message = begin(Opcode::kCompareSet, key, expected);
  message.put_string(desired);
  std::string value;
  connection_->request(message, [&](StoreChannel& channel) {
    value = channel.read_string(connection_->io_deadline());
  });
  return value;
}

bool TcpStore::delete_key(const std::string& key) {
  check_sizes(options_.limits, key, 0);
  std::int64_t n_deleted = 0;
  connection_->request(begin(Opcode::kDeleteKey, key), [&](StoreChannel& channel) {
    n_deleted = channel.read_i64(connection_->io_deadline());
  });
  return n_deleted > 0;
}

std::int64_t TcpStore::num_keys() {
  std::int64_t n = 0;
  connection_->request(begin(Opcode::kNumKeys), [&](StoreChannel& channel) {
    n = channel.read_i64(connection_->io_deadline());
  });
  return n;
}

std::vector<std::string> TcpStore::list_keys() {
  std::vector<std::string> keys;
  connection_->request(begin(Opcode::kListKeys), [&](StoreChannel& channel) {
    for (std::int64_t n = channel.read_i64(connection_->io_deadline()); n > 0; --n) {
      const std::string key = channel.read_string(connection_->io_deadline());
      if (key.starts_with(kKeyPrefix)) {
        keys.push_back(key.substr(kKeyPrefix.size()));
      }
    }
  });
  return keys;
}

std::vector<std::string> TcpStore::multi_get(std::span<const std::string> keys, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(options_.limits, keys);
  std::vector<std::string> values(keys.size());
  const bool are_there =
      connection_->wait_and_read(begin(Opcode::kWait, keys),
                                 begin(Opcode::kMultiGet, keys),
                                 deadline,
                                 [&](StoreChannel& channel) {
                                   for (std::string& value : values) {
                                     value = channel.read_string(connection_->io_deadline());
                                   }
                                 });
  if (!are_there) {
    throw_missing("multi_get", keys, start);
  }
  return values;
}

void TcpStore::multi_set(std::span<const KeyValue> pairs) {
  check_sizes(options_.limits, pairs);
  ByteWriter message = begin(Opcode::kMultiSet);
  message.put<std::uint64_t>(pairs.size());
  for (const auto& [key, value] : pairs) {
    put_key(message, key);
    message.put_string(value);
  }
  connection_->request(message, nullptr);
}

void TcpStore::queue_push(const std::string& key, const std::string& value) {
  check_sizes(options_.limits, key, value.size());
  connection_->request(begin(Opcode::kQueuePush, key, value), nullptr);
}

std::string TcpStore::queue_pop(const std::string& key, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(options_.limits, key, 0);
  std::optional<std::string> value;
  const ByteWriter wait = begin(Opcode::kWait, as_span(key));
  const ByteWriter pop = begin(Opcode::kQueuePop, key);
  const StoreConnection::Body read_value = [&](StoreChannel& channel) {
    if (channel.read_i64(connection_->io_deadline()) > 0) {
      value = channel.read_string(connection_->io_deadline());
    }
  };
  // Another client may take the value between this client's wait and pop.
  while (!value) {
    const bool was_there = connection_->wait_and_read(wait, pop, deadline, read_value);
    if (!value && (!was_there || deadline.has_passed())) {
      throw_missing("queue_pop", as_span(key), start);
    }
  }
  return std::move(*value);
}

std::optional<std::string> TcpStore::try_queue_pop(const std::string& key) {
  check_sizes(options_.limits, key, 0);
  std::optional<std::string> value;
  connection_->request(begin(Opcode::kQueuePop, key), [&](StoreChannel& channel) {
    if (channel.read_i64(connection_->io_deadline()) > 0) {
      value = channel.read_string(connection_->io_deadline());
    }
  });
  return value;
}

std::int64_t TcpStore::queue_len(const std::string& key) {
  check_sizes(options_.limits, key, 0);
  std::int64_t length = 0;
  connection_->request(begin(Opcode::kQueueLen, key), [&](StoreChannel& channel) {
    length = channel.read_i64(connection_->io_deadline());
  });
  return length;
}

void TcpStore::barrier(const std::string& key, std::int64_t world_size, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(options_.limits, key, 0);
  if (!connection_->wait_and_read(
          begin(Opcode::kBarrier, key, world_size), {}, deadline, nullptr)) {
    throw incomplete_barrier(
        connection_->peer(), key, try_get(key).value_or("0"), world_size, start);
  }
}

std::unique_ptr<Watch> TcpStore::watch(const std::string& key, WatchCallback on_change) {
  check_sizes(options_.limits, key, 0);
  if (connection_->is_plain()) {
    return std::make_unique<PollingWatch>(*this, key, std::move(on_change));
  }
  const TimedLock lock(*watch_mutex_, connection_->io_deadline(), connection_->peer());
  if (watches_ == nullptr) {
    watches_ = std::make_unique<WatchConnection>(options_);
  }
  return watches_->watch(key, std::move(on_change));
}

void TcpStore::set_at_end(const std::string& key, const std::string& value) {
  check_sizes(options_.limits, key, value.size());
  if (value.size() > kMaxLastWordBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store: the value for \"{}\" at the end has {} bytes; at most {} are "
                            "allowed",
                            key,
                            value.size(),
                            kMaxLastWordBytes));
  }
  if (!connection_->is_plain()) {
    connection_->request(begin(Opcode::kSetAtEnd, key, value), nullptr);
  }
}

const std::string& TcpStore::job() const {
  return connection_->job();
}

int TcpStore::fd() const {
  return connection_->fd();
}

net::Address TcpStore::local_address() const {
  return net::local_address(connection_->fd());
}

void TcpStore::throw_missing(const char* call,
                             std::span<const std::string> keys,
                             Deadline::Clock::time_point start) {
  throw missing_keys(
      connection_->peer(),
      call,
      keys,
      [this](const std::string& key) { return check(as_span(key)); },
      start);
}

}  // namespace unisono::store
