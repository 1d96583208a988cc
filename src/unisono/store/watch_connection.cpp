#include "unisono/store/watch_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/store/handshake.h"
#include "unisono/store/messages.h"
#include "unisono/store/protocol.h"
#include "unisono/store/refusals.h"

namespace unisono::store {
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
    return;  // The store is gone, and with it what it knew.
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
  const auto notice = static_cast<Notice>(channel_.read_u8(Deadline::never()));
  const std::string key = channel_.read_string(deadline);
  if (notice == Notice::kWatching) {
    {
      const MutexLock lock(mutex_);
      ++n_answered_;
    }
    answered_.notify_all();
    return;
  }
  if (notice != Notice::kChanged || !key.starts_with(kKeyPrefix)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: news that no watch has", channel_.peer()));
  }
  KeyChange change{.key = key.substr(kKeyPrefix.size()), .before = {}, .after = {}};
  change.before = read_value(channel_, deadline);
  change.after = read_value(channel_, deadline);
  dispatcher_.tell(change);
}

}  // namespace unisono::store
