#include "unisono/store/store_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <optional>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/thread.h"
#include "unisono/store/protocol.h"
#include "unisono/store/refusals.h"

namespace unisono::store {
namespace {

std::uint8_t read_wait_reply(StoreChannel& channel, Deadline deadline) {
  channel.begin_reply(deadline);
  return channel.read_u8(deadline);
}

// Limit for cancelling a wait after an interruption: an interrupted caller must not wait for a
// server that hangs.
constexpr std::chrono::milliseconds kPatience{50};

void expect_wait_reply(const StoreChannel& channel, std::uint8_t reply, WaitReply expected) {
  if (reply != static_cast<std::uint8_t>(expected)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: an unexpected answer to a wait; is it a store?", channel.peer()));
  }
}

}  // namespace

StoreConnection::StoreConnection(const TcpStoreOptions& options, Deadline deadline)
    : StoreConnection(shake_hands(options, deadline), options.io_timeout) {}

StoreConnection::StoreConnection(Handshake handshake, std::chrono::milliseconds io_timeout)
    : io_timeout_(io_timeout),
      is_plain_(handshake.is_plain),
      job_(std::move(handshake.job)),
      channel_(std::move(handshake.channel)) {}

void StoreConnection::use(Deadline deadline, const Body& body) {
  const TimedLock lock(connection_mutex_, deadline, channel_.peer());
  if (!closed_because_.empty()) {
    throw Error(ErrorCode::kClosed, "the connection was closed after: " + closed_because_);
  }
  try {
    body(channel_);
  } catch (const Refusal&) {
    throw;  // The refusal takes the place of the reply, so the connection stays usable.
  } catch (const Error& error) {
    closed_because_ = error.what();
    throw;
  }
}

void StoreConnection::request(const ByteWriter& message, const Body& read_reply) {
  use(io_deadline(), [&](StoreChannel& channel) {
    send(channel, message);
    if (read_reply) {
      channel.begin_reply(io_deadline());
      read_reply(channel);
    }
  });
}

// An earlier request without a reply may be the reason for which the server has closed the
// connection.
void StoreConnection::send(StoreChannel& channel, const ByteWriter& message) {
  try {
    channel.send(message.bytes(), io_deadline());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kPeerLost) {
      channel.check_for_reason();
    }
    throw;
  }
}

// Unisono's server defers requests behind a wait until the wait ends, which saves a round trip.
// PyTorch's server would reply at once.
bool StoreConnection::wait_and_read(const ByteWriter& wait,
                                    const ByteWriter& then,
                                    Deadline deadline,
                                    const Body& read_reply) {
  bool is_done = false;
  std::exception_ptr interruption;
  use(deadline, [&](StoreChannel& channel) {
    ByteWriter message = wait;
    if (!is_plain_) {
      message.put_raw(then.bytes());
    }
    send(channel, message);
    is_done = end_wait(channel, deadline, is_plain_ ? Body() : read_reply, interruption);
    if (is_done && is_plain_ && read_reply && interruption == nullptr) {
      channel.send(then.bytes(), io_deadline());
      read_reply(channel);
    }
  });
  if (interruption != nullptr) {
    std::rethrow_exception(interruption);
  }
  return is_done;
}

std::uint8_t StoreConnection::cancel(StoreChannel& channel,
                                     const std::exception_ptr& interruption) {
  if (interruption == nullptr) {
    send(channel, begin(Opcode::kCancelWait));
    return read_wait_reply(channel, io_deadline());
  }
  try {
    const Deadline deadline = Deadline::after(kPatience);
    channel.send(begin(Opcode::kCancelWait).bytes(), deadline);
    return read_wait_reply(channel, deadline);
  } catch (const Error&) {
    std::rethrow_exception(interruption);
  }
}

bool StoreConnection::end_wait(StoreChannel& channel,
                               Deadline deadline,
                               const Body& read_rest,
                               std::exception_ptr& interruption) {
  const auto read_rest_if_any = [&] {
    if (read_rest) {
      channel.begin_reply(io_deadline());
      read_rest(channel);
    }
  };
  bool is_over = false;
  try {
    is_over = channel.wait_for_reply(deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) {
      throw;
    }
    interruption = std::current_exception();
  }
  if (is_over) {
    expect_wait_reply(channel, read_wait_reply(channel, io_deadline()), WaitReply::kStopWaiting);
    read_rest_if_any();
    return true;
  }
  try {
    const std::uint8_t first = cancel(channel, interruption);
    read_rest_if_any();
    if (first == static_cast<std::uint8_t>(WaitReply::kWaitCanceled)) {
      return false;
    }
    // The end of the wait and the cancellation crossed on the wire.
    expect_wait_reply(channel, first, WaitReply::kStopWaiting);
    expect_wait_reply(channel, read_wait_reply(channel, io_deadline()), WaitReply::kWaitCanceled);
    return true;
  } catch (const Refusal& refusal) {
    // A reply to the cancellation may still follow, so the connection cannot be used again.
    throw Error(refusal.code(), refusal.what());
  }
}

namespace {

std::optional<std::string> read_value(StoreChannel& channel, Deadline deadline) {
  return channel.read_u8(deadline) == 0 ? std::nullopt
                                        : std::optional(channel.read_string(deadline));
}

}  // namespace

class WatchConnection::KeyWatch final : public Watch {
 public:
  KeyWatch(WatchConnection& connection, std::string key, std::unique_ptr<Watch> registration)
      : connection_(connection), key_(std::move(key)), registration_(std::move(registration)) {}

  ~KeyWatch() override {
    registration_.reset();
    connection_.unwatch(key_);
  }

  KeyWatch(const KeyWatch&) = delete;
  KeyWatch& operator=(const KeyWatch&) = delete;
  KeyWatch(KeyWatch&&) = delete;
  KeyWatch& operator=(KeyWatch&&) = delete;

 private:
  WatchConnection& connection_;
  std::string key_;
  std::unique_ptr<Watch> registration_;
};

WatchConnection::WatchConnection(const TcpStoreOptions& options)
    : io_timeout_(options.io_timeout),
      channel_(shake_hands(options, Deadline::after(options.io_timeout)).channel) {
  thread_ = start_thread("unisono-watch", "can't watch a store's keys", [this] { read(); });
}

WatchConnection::~WatchConnection() {
  ::shutdown(channel_.fd(), SHUT_RDWR);
  thread_.join();
}

std::unique_ptr<Watch> WatchConnection::watch(const std::string& key, WatchCallback on_change) {
  std::unique_ptr<Watch> watch;
  std::uint64_t number = 0;
  {
    const TimedLock lock(connection_mutex_, Deadline::after(io_timeout_), channel_.peer());
    watch = std::make_unique<KeyWatch>(*this, key, dispatcher_.watch(key, std::move(on_change)));
    channel_.send(begin(Opcode::kWatch, key).bytes(), Deadline::after(io_timeout_));
    number = ++n_asked_;
  }
  wait_for_answer(number);
  return watch;
}

void WatchConnection::wait_for_answer(std::uint64_t number) {
  const Deadline deadline = Deadline::after(io_timeout_);
  const MutexLock lock(mutex_);
  while (n_answered_ < number) {
    if (!closed_because_.empty()) {
      throw Error(ErrorCode::kPeerLost, closed_because_);
    }
    if (!answered_.wait_until(mutex_, deadline.time()) && deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout, channel_.peer() + ": no answer to a request to watch a key");
    }
  }
  const auto refused = refused_.extract(number);
  if (!refused.empty()) {
    throw Refusal(refused.mapped());
  }
}

// Another thread may have begun to watch the same key.
void WatchConnection::unwatch(const std::string& key) noexcept {
  try {
    const TimedLock lock(connection_mutex_, Deadline::after(io_timeout_), channel_.peer());
    if (!dispatcher_.is_watched(key)) {
      channel_.send(begin(Opcode::kUnwatch, key).bytes(), Deadline::after(io_timeout_));
    }
  } catch (const std::exception&) {
    return;  // The store is gone, and the watches with it.
  }
}

void WatchConnection::read() {
  try {
    for (;;) {
      read_notice();
    }
  } catch (const std::exception& error) {
    const MutexLock lock(mutex_);
    closed_because_ = error.what();
  }
  answered_.notify_all();
}

void WatchConnection::read_notice() {
  try {
    channel_.begin_reply(Deadline::never());
  } catch (const Refusal& refusal) {
    {
      const MutexLock lock(mutex_);
      refused_.emplace(++n_answered_, refusal.what());
    }
    answered_.notify_all();
    return;
  }
  const Deadline deadline = Deadline::after(io_timeout_);
  const auto notice = static_cast<WatchNotice>(channel_.read_u8(Deadline::never()));
  const std::string key = channel_.read_string(deadline);
  if (notice == WatchNotice::kWatching) {
    {
      const MutexLock lock(mutex_);
      ++n_answered_;
    }
    answered_.notify_all();
    return;
  }
  if (notice != WatchNotice::kChanged || !key.starts_with(kKeyPrefix)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: a notification of an unknown watch", channel_.peer()));
  }
  KeyChange change{.key = key.substr(kKeyPrefix.size()), .before = {}, .after = {}};
  change.before = read_value(channel_, deadline);
  change.after = read_value(channel_, deadline);
  dispatcher_.tell(change);
}

}  // namespace unisono::store
