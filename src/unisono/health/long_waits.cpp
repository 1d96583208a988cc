#include "unisono/health/long_waits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/wait_record.h"
#include "unisono/health/rank_wait.h"

namespace unisono::health {
namespace {

// Until it is closed. A second one of this process does not get it.
bool lock_whole_file(int fd) {
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

bool has_whole_size(int fd) {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && std::cmp_equal(status.st_size, kWaitFileBytes);
}

}  // namespace

std::unique_ptr<LongWaits> LongWaits::open(const std::string& path, const Logger& logger) {
  if (path.empty()) {
    return nullptr;
  }
  const auto give_up = [&](const std::string& why) {
    logger.warning(fmt::format(
        "the launcher can't see for whom this rank waits, so --stall-timeout does not end such "
        "waits: {}={}: {}",
        kWaitFileVariable,
        path,
        why));
    return nullptr;
  };
  // A child that lives on would keep the lock.
  Fd file = Fd::open_unshared([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); });
  if (!file.is_open()) {
    return give_up(std::generic_category().message(errno));
  }
  if (!has_whole_size(file.get())) {
    return give_up("it is no file of a launcher");
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

// The launcher may want to say what this process does before it waits for anybody.
LongWaits::LongWaits(Fd file, std::byte* memory)
    : pid_(::getpid()), file_(std::move(file)), memory_(memory) {
  const MutexLock lock(mutex_);
  write();
}

LongWaits::~LongWaits() {
  close();
}

// Before the lock: another thread may have held it when the process forked.
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

void LongWaits::note(const WaitId& id, LongWait wait) {
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

void LongWaits::forget(const WaitId& id) noexcept {
  if (!is_own()) {
    return;
  }
  const MutexLock lock(mutex_);
  if (waits_.erase(id) > 0) {
    write();
  }
}

// Whoever reads while this writes finds a wrong checksum.
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
    // Out of memory: the launcher sees that nobody looks after these waits any more.
    return;
  }
}

}  // namespace unisono::health
