#include "unisono/health/file_reserve.h"

#include <sys/eventfd.h>

#include <chrono>

#include "unisono/base/fd.h"

namespace unisono::health {
namespace {

// Who lacks descriptors looks again sooner.
constexpr std::chrono::seconds kLongestGap{1};

}  // namespace

FileReserve::FileReserve() {
  (void)refill();
}

bool FileReserve::note_lack(Time now) {
  if (now - last_ > kLongestGap) {
    since_ = now;
  }
  last_ = now;
  if (!file_.is_open() || now - since_ < kFilePatience) {
    return false;
  }
  file_.reset();
  return true;
}

bool FileReserve::refill() {
  if (!file_.is_open()) {
    file_ = Fd(::eventfd(0, EFD_CLOEXEC));
  }
  return file_.is_open();
}

}  // namespace unisono::health
