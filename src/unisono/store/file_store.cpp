#include "unisono/store/file_store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/store/file_log.h"
#include "unisono/store/lockable_file.h"
#include "unisono/store/refusals.h"
#include "unisono/store/store_map.h"
#include "unisono/store/timed_mutex.h"
#include "unisono/store/watch_dispatcher.h"

namespace unisono::store {
namespace {

constexpr std::chrono::nanoseconds kFirstPause = std::chrono::milliseconds(1);
constexpr std::chrono::nanoseconds kLongestPause = std::chrono::milliseconds(20);
constexpr std::chrono::nanoseconds kLeastTimeForAccess = std::chrono::milliseconds(100);

}  // namespace

FileStore::FileStore(const FileStoreOptions& options, Deadline deadline)
    : MapStore("store " + options.path, options.limits, options.io_timeout),
      io_timeout_(options.io_timeout),
      connection_mutex_(std::make_unique<TimedMutex>()),
      log_(std::make_unique<FileLog>(options.path, options.limits, deadline)),
      map_(std::make_unique<StoreMap>()) {}

FileStore::~FileStore() = default;

std::unique_ptr<Watch> FileStore::watch(const std::string& key, WatchCallback on_change) {
  check_sizes(limits(), key, 0);
  return std::make_unique<PollingWatch>(*this, key, std::move(on_change));
}

void FileStore::remove() {
  const Deadline deadline = Deadline::after(io_timeout_);
  const TimedLock lock(*connection_mutex_, deadline, name());
  const FileLog::Lock file_lock = log_->lock(LockableFile::Mode::kExclusive, deadline);
  log_->remove();
  closed_because_ = "its file was removed";
}

bool FileStore::leave() {
  const Deadline deadline = Deadline::after(io_timeout_);
  const TimedLock lock(*connection_mutex_, deadline, name());
  const FileLog::Lock file_lock = log_->lock(LockableFile::Mode::kExclusive, deadline);
  closed_because_ = "this process left it";
  // Done under the lock: if two processes leave at the same time, the second deletes the file.
  log_->claims().release_claims();
  const bool is_last = !log_->claims().has_claims();
  if (is_last) {
    log_->remove();
  }
  return is_last;
}

bool FileStore::claim(std::uint32_t number) {
  const TimedLock lock(*connection_mutex_, Deadline::after(io_timeout_), name());
  return log_->claims().claim(number);
}

bool FileStore::is_claimed(std::uint32_t number) {
  const TimedLock lock(*connection_mutex_, Deadline::after(io_timeout_), name());
  return log_->claims().is_claimed(number);
}

bool FileStore::run(const MapCall& call) {
  Access access = call.access;
  std::chrono::nanoseconds pause = kFirstPause;
  for (;;) {
    if (const std::optional<bool> result = attempt_alone(call, access)) {
      return *result;
    }
    std::this_thread::sleep_for(std::min(pause, call.deadline.remaining()));
    pause = std::min(pause * 5 / 4, kLongestPause);
    access = Access::kLook;
  }
}

// Returns std::nullopt if the call has to continue.
std::optional<bool> FileStore::attempt_alone(const MapCall& call, Access access) {
  // The last attempt runs at the deadline itself, and other processes may hold the file then.
  const Deadline access_deadline =
      Deadline::after(std::max(call.deadline.remaining(), kLeastTimeForAccess));
  const TimedLock lock(*connection_mutex_, access_deadline, name());
  if (!closed_because_.empty()) {
    throw Error(ErrorCode::kClosed, name() + " was closed after: " + closed_because_);
  }
  try {
    const bool is_done = attempt_locked(call, access, access_deadline);
    if (!is_done && !call.deadline.has_passed()) {
      return std::nullopt;
    }
    map_->cancel(call.client);
    return is_done;
  } catch (const Error& error) {
    map_->cancel(call.client);
    if (error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kCorruptData) {
      closed_because_ = error.what();
    }
    throw;
  }
}

bool FileStore::attempt_locked(const MapCall& call, Access access, Deadline deadline) {
  {
    using Mode = LockableFile::Mode;
    const Mode mode = access == Access::kLook ? Mode::kShared : Mode::kExclusive;
    const FileLog::Lock file_lock = log_->lock(mode, deadline);
    log_->read_new(*map_);
    bool is_done = false;
    Change change;
    do {
      change.clear();
      is_done = call.attempt(*map_, change);
      if (change.empty() || access == Access::kLook) {
        break;
      }
      log_->append(change);
      for (MapStep& step : change) {
        apply(*map_, std::move(step), call.client);
      }
    } while (!is_done);
    // Waiting calls poll the map themselves.
    (void)map_->take_woken();
    if (change.empty() || access == Access::kChange) {
      return is_done;
    }
  }
  // A change needs the exclusive lock, and another attempt under that lock.
  return attempt_locked(call, Access::kChange, deadline);
}

}  // namespace unisono::store
