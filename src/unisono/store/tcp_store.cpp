#include "unisono/store/tcp_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/socket.h"
#include "unisono/store/messages.h"
#include "unisono/store/polling_watch.h"
#include "unisono/store/protocol.h"
#include "unisono/store/sizes.h"
#include "unisono/store/store_channel.h"
#include "unisono/store/timeouts.h"
#include "unisono/store/turn.h"
#include "unisono/store/watch.h"

namespace unisono::store {
namespace {

std::span<const std::string> as_span(const std::string& key) {
  return {&key, 1};
}

[[noreturn]] void throw_corrupt(const StoreChannel& channel, const char* what) {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}; is it a store?", channel.peer(), what));
}

void expect_wait_reply(const StoreChannel& channel, std::uint8_t reply, WaitReply expected) {
  if (reply != static_cast<std::uint8_t>(expected)) {
    throw_corrupt(channel, "an answer that no wait has");
  }
}

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options, Deadline deadline)
    : io_timeout_(options.io_timeout),
      limits_(options.limits),
      is_plain_(options.secret.empty()),
      turn_(std::make_unique<Turn>()) {
  Fd fd = net::connect_tcp(options.host, options.port, deadline);
  net::set_liveness_timeout(fd.get(), std::chrono::seconds(60));
  channel_ = std::make_unique<StoreChannel>(std::move(fd),
                                            fmt::format("store {}:{}", options.host, options.port));
  introduce(options, deadline);
}

TcpStore::~TcpStore() = default;

void TcpStore::introduce(const TcpStoreOptions& options, Deadline deadline) {
  if (!is_plain_) {
    net::connect_hello(channel_->fd(),
                       options.secret,
                       {.job = "", .purpose = kHelloPurpose, .rank = options.rank},
                       deadline);
    return;
  }
  constexpr std::uint32_t kNonce = 0x756E6973;
  ByteWriter message = begin(Opcode::kValidate);
  message.put(kValidateMagic);
  message.put(static_cast<std::uint8_t>(Opcode::kPing));
  message.put(kNonce);
  try {
    channel_->send(message.bytes(), deadline);
    if (channel_->read_u32(deadline) != kNonce) {
      throw_corrupt(*channel_, "a wrong answer to the first request");
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) {
      throw;
    }
    throw Error(error.code(),
                std::string(error.what()) +
                    "; it is no store, or one that wants a secret (UNISONO_SECRET, "
                    "UNISONO_SECRET_FILE)");
  }
}

void TcpStore::set(const std::string& key, const std::string& value) {
  check_sizes(limits_, key, value.size());
  request(begin(Opcode::kSet, key, value), nullptr);
}

std::string TcpStore::get(const std::string& key, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, key, 0);
  std::string value;
  const bool is_there =
      wait_and_read(begin(Opcode::kWait, as_span(key)),
                    begin(Opcode::kGet, key),
                    deadline,
                    [&](StoreChannel& channel) { value = channel.read_string(io_deadline()); });
  if (!is_there) {
    throw_missing("get", as_span(key), start);
  }
  return value;
}

std::optional<std::string> TcpStore::try_get(const std::string& key) {
  if (!check(as_span(key))) {
    return std::nullopt;
  }
  std::string value;
  request(begin(Opcode::kGet, key),
          [&](StoreChannel& channel) { value = channel.read_string(io_deadline()); });
  return value;
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t delta) {
  check_sizes(limits_, key, 0);
  std::int64_t sum = 0;
  request(begin(Opcode::kAdd, key, delta),
          [&](StoreChannel& channel) { sum = channel.read_i64(io_deadline()); });
  return sum;
}

void TcpStore::append(const std::string& key, const std::string& value) {
  check_sizes(limits_, key, value.size());
  request(begin(Opcode::kAppend, key, value), nullptr);
}

bool TcpStore::check(std::span<const std::string> keys) {
  check_sizes(limits_, keys);
  std::uint8_t reply = 0;
  request(begin(Opcode::kCheck, keys),
          [&](StoreChannel& channel) { reply = channel.read_u8(io_deadline()); });
  return reply == static_cast<std::uint8_t>(CheckReply::kReady);
}

void TcpStore::wait(std::span<const std::string> keys, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, keys);
  if (!wait_and_read(begin(Opcode::kWait, keys), {}, deadline, nullptr)) {
    throw_missing("wait", keys, start);
  }
}

std::string TcpStore::compare_set(const std::string& key,
                                  const std::string& expected,
                                  const std::string& desired) {
  check_sizes(limits_, key, std::max(expected.size(), desired.size()));
  ByteWriter message = begin(Opcode::kCompareSet, key, expected);
  message.put_string(desired);
  std::string value;
  request(message, [&](StoreChannel& channel) { value = channel.read_string(io_deadline()); });
  return value;
}

bool TcpStore::delete_key(const std::string& key) {
  check_sizes(limits_, key, 0);
  std::int64_t n_deleted = 0;
  request(begin(Opcode::kDeleteKey, key),
          [&](StoreChannel& channel) { n_deleted = channel.read_i64(io_deadline()); });
  return n_deleted > 0;
}

std::int64_t TcpStore::num_keys() {
  std::int64_t n = 0;
  request(begin(Opcode::kNumKeys),
          [&](StoreChannel& channel) { n = channel.read_i64(io_deadline()); });
  return n;
}

std::vector<std::string> TcpStore::list_keys() {
  std::vector<std::string> keys;
  request(begin(Opcode::kListKeys), [&](StoreChannel& channel) {
    for (std::int64_t n = channel.read_i64(io_deadline()); n > 0; --n) {
      const std::string key = channel.read_string(io_deadline());
      if (key.starts_with(kKeyPrefix)) {
        keys.push_back(key.substr(kKeyPrefix.size()));
      }
    }
  });
  return keys;
}

std::vector<std::string> TcpStore::multi_get(std::span<const std::string> keys, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, keys);
  std::vector<std::string> values(keys.size());
  const bool are_there = wait_and_read(begin(Opcode::kWait, keys),
                                       begin(Opcode::kMultiGet, keys),
                                       deadline,
                                       [&](StoreChannel& channel) {
                                         for (std::string& value : values) {
                                           value = channel.read_string(io_deadline());
                                         }
                                       });
  if (!are_there) {
    throw_missing("multi_get", keys, start);
  }
  return values;
}

void TcpStore::multi_set(std::span<const KeyValue> pairs) {
  check_sizes(limits_, pairs);
  ByteWriter message = begin(Opcode::kMultiSet);
  message.put<std::uint64_t>(pairs.size());
  for (const auto& [key, value] : pairs) {
    put_key(message, key);
    message.put_string(value);
  }
  request(message, nullptr);
}

void TcpStore::queue_push(const std::string& key, const std::string& value) {
  check_sizes(limits_, key, value.size());
  request(begin(Opcode::kQueuePush, key, value), nullptr);
}

std::string TcpStore::queue_pop(const std::string& key, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, key, 0);
  std::optional<std::string> value;
  const ByteWriter wait = begin(Opcode::kWait, as_span(key));
  const ByteWriter pop = begin(Opcode::kQueuePop, key);
  const Body read_value = [&](StoreChannel& channel) {
    if (channel.read_i64(io_deadline()) > 0) {
      value = channel.read_string(io_deadline());
    }
  };
  // Another client may take the value between our wait and our pop.
  while (!value) {
    const bool was_there = wait_and_read(wait, pop, deadline, read_value);
    if (!value && (!was_there || deadline.has_passed())) {
      throw_missing("queue_pop", as_span(key), start);
    }
  }
  return std::move(*value);
}

std::optional<std::string> TcpStore::try_queue_pop(const std::string& key) {
  check_sizes(limits_, key, 0);
  std::optional<std::string> value;
  request(begin(Opcode::kQueuePop, key), [&](StoreChannel& channel) {
    if (channel.read_i64(io_deadline()) > 0) {
      value = channel.read_string(io_deadline());
    }
  });
  return value;
}

std::int64_t TcpStore::queue_len(const std::string& key) {
  check_sizes(limits_, key, 0);
  std::int64_t length = 0;
  request(begin(Opcode::kQueueLen, key),
          [&](StoreChannel& channel) { length = channel.read_i64(io_deadline()); });
  return length;
}

void TcpStore::barrier(const std::string& key, std::int64_t world_size, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  check_sizes(limits_, key, 0);
  if (!wait_and_read(begin(Opcode::kBarrier, key, world_size), {}, deadline, nullptr)) {
    throw incomplete_barrier(channel_->peer(), key, try_get(key).value_or("0"), world_size, start);
  }
}

std::unique_ptr<Watch> TcpStore::watch(const std::string& key, WatchCallback on_change) {
  check_sizes(limits_, key, 0);
  return std::make_unique<PollingWatch>(*this, key, std::move(on_change));
}

net::Address TcpStore::local_address() const {
  return net::local_address(channel_->fd());
}

// Whatever goes wrong in the middle of an exchange leaves the connection at an unknown place, so it
// is not used again.
void TcpStore::use(Deadline deadline, const Body& body) {
  if (!turn_->take(deadline)) {
    throw Error(ErrorCode::kTimeout,
                channel_->peer() + ": another thread's request took all of the time");
  }
  const TurnGuard turn(*turn_);
  if (!closed_because_.empty()) {
    throw Error(ErrorCode::kClosed, "the connection was closed after: " + closed_because_);
  }
  try {
    body(*channel_);
  } catch (const Error& error) {
    closed_because_ = error.what();
    throw;
  }
}

void TcpStore::request(const ByteWriter& message, const Body& read_reply) {
  use(io_deadline(), [&](StoreChannel& channel) {
    channel.send(message.bytes(), io_deadline());
    if (read_reply) {
      read_reply(channel);
    }
  });
}

// Sends `wait`, and when it is over `then`. False when the deadline passed before.
//
// Our server keeps what follows a wait until that ends, which saves a round trip. PyTorch's would
// answer it at once.
bool TcpStore::wait_and_read(const ByteWriter& wait,
                             const ByteWriter& then,
                             Deadline deadline,
                             const Body& read_reply) {
  bool is_done = false;
  use(deadline, [&](StoreChannel& channel) {
    ByteWriter message = wait;
    if (!is_plain_) {
      message.put_raw(then.bytes());
    }
    channel.send(message.bytes(), io_deadline());
    is_done = end_wait(channel, deadline, is_plain_ ? Body() : read_reply);
    if (is_done && is_plain_ && read_reply) {
      channel.send(then.bytes(), io_deadline());
      read_reply(channel);
    }
  });
  return is_done;
}

bool TcpStore::end_wait(StoreChannel& channel, Deadline deadline, const Body& read_rest) {
  const auto read_rest_if_any = [&] {
    if (read_rest) {
      read_rest(channel);
    }
  };
  if (channel.wait_for_reply(deadline)) {
    expect_wait_reply(channel, channel.read_u8(io_deadline()), WaitReply::kStopWaiting);
    read_rest_if_any();
    return true;
  }
  channel.send(begin(Opcode::kCancelWait).bytes(), io_deadline());
  const std::uint8_t first = channel.read_u8(io_deadline());
  read_rest_if_any();
  if (first == static_cast<std::uint8_t>(WaitReply::kWaitCanceled)) {
    return false;
  }
  // The end of the wait and our cancellation crossed.
  expect_wait_reply(channel, first, WaitReply::kStopWaiting);
  expect_wait_reply(channel, channel.read_u8(io_deadline()), WaitReply::kWaitCanceled);
  return true;
}

void TcpStore::throw_missing(const char* call,
                             std::span<const std::string> keys,
                             Deadline::Clock::time_point start) {
  throw missing_keys(
      channel_->peer(),
      call,
      keys,
      [this](const std::string& key) { return check(as_span(key)); },
      start);
}

}  // namespace unisono::store
