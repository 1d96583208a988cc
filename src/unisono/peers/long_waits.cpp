#include "unisono/peers/long_waits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>
#include <vector>

namespace unisono::peers {

void BlockedThreads::begin(std::uint64_t thread, const transport::WaitId& work) {
  const MutexLock lock(mutex_);
  const auto [wait, is_new] = waits_.try_emplace(thread);
  if (is_new) {
    wait->second.since = Deadline::Clock::now();
  }
  wait->second.works.insert(work);
}

void BlockedThreads::end(std::uint64_t thread) {
  const MutexLock lock(mutex_);
  waits_.erase(thread);
}

std::optional<transport::WaitId> BlockedThreads::find(std::uint64_t thread) const {
  const MutexLock lock(mutex_);
  const auto found = waits_.find(thread);
  return found == waits_.end() || found->second.works.size() > 1
             ? std::nullopt
             : std::optional(*found->second.works.begin());
}

std::optional<Deadline::Clock::time_point> BlockedThreads::waited_since(
    const transport::WaitId& work) const {
  const MutexLock lock(mutex_);
  std::optional<Deadline::Clock::time_point> since;
  for (const auto& [thread, wait] : waits_) {
    if (wait.works.contains(work)) {
      since = std::min(since.value_or(wait.since), wait.since);
    }
  }
  return since;
}

void BlockedThreads::add_callback(const transport::WaitId& work) {
  const MutexLock lock(mutex_);
  with_callback_.insert(work);
}

void BlockedThreads::remove_callback(const transport::WaitId& work) {
  const MutexLock lock(mutex_);
  with_callback_.erase(work);
}

bool BlockedThreads::has_callback_besides(const transport::WaitId& wait) const {
  const MutexLock lock(mutex_);
  return std::any_of(
      with_callback_.begin(), with_callback_.end(), [&](const transport::WaitId& work) {
        const bool is_behind = !wait.is_message && !work.is_message && work.group == wait.group &&
                               work.sequence >= wait.sequence;
        return work != wait && !is_behind;
      });
}

namespace {

// Locks the file until it is closed. Returns false if another open file has the lock, also in this
// process.
bool lock_whole_file(int fd) {
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

// A file of another size was not made by a launcher.
bool has_whole_size(int fd) {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && std::cmp_equal(status.st_size, kWaitFileBytes);
}

}  // namespace

std::unique_ptr<LongWaits> LongWaits::open(const std::string& path, const base::Logger& logger) {
  if (path.empty()) {
    return nullptr;
  }
  const auto give_up = [&](const std::string& why) {
    logger.warning(
        fmt::format("the launcher can't see which ranks this rank waits for, so --stall-timeout "
                    "does not end such "
                    "waits: {}={}: {}",
                    kWaitFileVariable,
                    path,
                    why));
    return nullptr;
  };
  // A child process that survives would keep the lock.
  Fd file = Fd::open_unshared([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); });
  if (!file.is_open()) {
    return give_up(std::generic_category().message(errno));
  }
  if (!has_whole_size(file.get())) {
    return give_up("it is not a file of a launcher");
  }
  if (!lock_whole_file(file.get())) {
    return nullptr;
  }
  void* const memory =
      ::mmap(nullptr, kWaitFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    return give_up(std::generic_category().message(errno));
  }
  return std::unique_ptr<LongWaits>(
      new LongWaits(std::move(file), static_cast<std::byte*>(memory)));
}

// The launcher may show the activity of this process before the first wait.
LongWaits::LongWaits(Fd file, std::byte* memory)
    : pid_(::getpid()), file_(std::move(file)), memory_(memory) {
  const MutexLock lock(mutex_);
  write();
}

LongWaits::~LongWaits() {
  close();
}

// Checked before the lock is taken: another thread may have held it when the process forked.
bool LongWaits::is_own() const {
  return ::getpid() == pid_;
}

void LongWaits::close() noexcept {
  if (!is_own()) {
    return;
  }
  const MutexLock lock(mutex_);
  if (memory_ != nullptr) {
    waits_.clear();
    write();
    ::munmap(memory_, kWaitFileBytes);
    memory_ = nullptr;
    file_.reset();
  }
}

void LongWaits::note(const transport::WaitId& id, LongWait wait) {
  if (!is_own()) {
    return;
  }
  const MutexLock lock(mutex_);
  const auto [known, is_new] = waits_.try_emplace(id, wait);
  if (!is_new) {
    known->second.seen = wait.seen;
    known->second.late = std::move(wait.late);
  }
  write();
}

void LongWaits::forget(const transport::WaitId& id) noexcept {
  if (!is_own()) {
    return;
  }
  const MutexLock lock(mutex_);
  if (waits_.erase(id) > 0) {
    write();
  }
}

// A reader during a write finds a wrong checksum.
void LongWaits::write() noexcept {
  if (memory_ == nullptr) {
    return;
  }
  try {
    WaitRecord record{.pid = pid_};
    for (const auto& [id, wait] : waits_) {
      record.waits.push_back(wait);
    }
    const std::vector<std::byte> bytes = checked(encode(record));
    std::memcpy(memory_, bytes.data(), bytes.size());
  } catch (const std::exception&) {
    // Out of memory: the launcher detects that these waits are no longer updated.
    return;
  }
}

}  // namespace unisono::peers
