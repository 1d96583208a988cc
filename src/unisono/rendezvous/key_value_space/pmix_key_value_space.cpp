#include "unisono/rendezvous/key_value_space/pmix_key_value_space.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/rendezvous/key_value_space/pmix_library.h"
#include "unisono/rendezvous/launchers/loaded_mpi.h"

namespace unisono::rendezvous {

// Lives until the library has called back, however long this process waits for that.
struct PmixFence {
  PmixInfo collect;
  std::shared_ptr<PmixFence> self;  // The library's share.
  Mutex mutex;
  Condition is_over;
  bool is_done UNISONO_GUARDED_BY(mutex) = false;
  PmixStatus status UNISONO_GUARDED_BY(mutex) = kPmixSuccess;
};

namespace {

// The daemon has it all after a fence that collects.
constexpr std::chrono::seconds kGetTimeout{60};

PmixInfo info(std::string_view key) {
  PmixInfo result;
  std::copy(key.begin(), key.end(), result.key.begin());
  return result;
}

void check(const PmixLibrary& library, PmixStatus status, const char* what) {
  if (status != kPmixSuccess) {
    const char* const text = library.describe(status);
    throw Error(ErrorCode::kSystem,
                fmt::format("{}: {} ({})", what, text == nullptr ? "error" : text, status));
  }
}

void finish(PmixFence& fence, PmixStatus status) {
  const MutexLock lock(fence.mutex);
  fence.is_done = true;
  fence.status = status;
  fence.is_over.notify_all();
}

void fence_is_over(PmixStatus status, void* context) {
  const std::shared_ptr<PmixFence> fence = std::move(static_cast<PmixFence*>(context)->self);
  finish(*fence, status);
}

pid_t& process_to_finalize() {
  static pid_t process = 0;
  return process;
}

void finalize_at_exit() {
  if (::getpid() == process_to_finalize()) {
    (void)pmix_library().finalize(nullptr, 0);
  }
}

}  // namespace

PmixKeyValueSpace::PmixKeyValueSpace(MpiState mpi) : library_(pmix_library()), mpi_(mpi) {
  PmixProcess self;
  check(library_, library_.init(&self, nullptr, 0), "PMIx_Init");
  name_space_ = std::string(self.name_space.data(),
                            ::strnlen(self.name_space.data(), self.name_space.size()));
}

void PmixKeyValueSpace::put(const std::string& key,
                            const std::string& text,
                            Deadline /*deadline*/) {
  std::string copy = text;
  PmixValue value;
  value.type = kPmixString;
  value.data.string = copy.data();
  check(library_, library_.put(kPmixGlobal, key.c_str(), &value), "PMIx_Put");
  check(library_, library_.commit(), "PMIx_Commit");
}

bool PmixKeyValueSpace::fence(Deadline deadline) {
  if (fence_ == nullptr) {
    fence_ = std::make_shared<PmixFence>();
    fence_->collect = info("pmix.collect");
    fence_->collect.value.type = kPmixBool;
    fence_->collect.value.data.flag = true;
    fence_->self = fence_;
    const PmixStatus status =
        library_.fence(nullptr, 0, &fence_->collect, 1, fence_is_over, fence_.get());
    if (status != kPmixSuccess) {
      fence_->self.reset();
      finish(*fence_, status == kPmixDoneAtOnce ? kPmixSuccess : status);
    }
  }
  PmixStatus status = kPmixSuccess;
  {
    const MutexLock lock(fence_->mutex);
    while (!fence_->is_done) {
      if (!fence_->is_over.wait_until(fence_->mutex, deadline.time()) && deadline.has_passed()) {
        return false;
      }
    }
    status = fence_->status;
  }
  fence_.reset();
  check(library_, status, "PMIx_Fence");
  return true;
}

std::string PmixKeyValueSpace::get(const std::string& key, Deadline deadline) {
  PmixProcess first;
  std::copy(name_space_.begin(), name_space_.end(), first.name_space.begin());
  PmixInfo timeout = info("pmix.timeout");
  timeout.value.type = kPmixInt;
  const auto left = std::chrono::ceil<std::chrono::seconds>(
      std::min<std::chrono::nanoseconds>(deadline.remaining(), kGetTimeout));
  timeout.value.data.integer = std::max(1, static_cast<int>(left.count()));
  PmixValue* value = nullptr;
  check(library_, library_.get(&first, key.c_str(), &timeout, 1, &value), "PMIx_Get");
  if (value == nullptr || value->type != kPmixString || value->data.string == nullptr) {
    throw Error(ErrorCode::kCorruptData, "PMIx_Get returned no text");
  }
  const std::unique_ptr<PmixValue, void (*)(void*)> owner(value, std::free);
  const std::unique_ptr<char, void (*)(void*)> text(value->data.string, std::free);
  return text.get();
}

void PmixKeyValueSpace::leave() noexcept {
  if (mpi_ != MpiState::kToCome) {
    (void)library_.finalize(nullptr, 0);
    return;
  }
  process_to_finalize() = ::getpid();
  std::atexit(finalize_at_exit);
}

}  // namespace unisono::rendezvous
