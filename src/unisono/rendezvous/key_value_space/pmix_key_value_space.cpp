#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/loaded_mpi.h"
#include "unisono/base/mutex.h"
#include "unisono/base/process.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"

namespace unisono::rendezvous {
namespace {

// The subset of PMIx that is used here, in the binary layout of the standard (version 3 and later).

using PmixStatus = int;

constexpr PmixStatus kPmixSuccess = 0;
constexpr PmixStatus kPmixDoneAtOnce = -157;  // PMIX_OPERATION_SUCCEEDED.
constexpr std::uint16_t kPmixBool = 1;
constexpr std::uint16_t kPmixString = 3;
constexpr std::uint16_t kPmixInt = 6;
constexpr std::uint8_t kPmixGlobal = 3;  // A scope: processes on all nodes.

struct PmixProcess {
  std::array<char, 256> name_space{};
  std::uint32_t rank = 0;
};

struct PmixValue {
  std::uint16_t type = 0;

  union Data {
    void* room[8];  // At least as large as the union of any version.
    char* string;
    int integer;
    bool flag;
  } data = {};
};

struct PmixInfo {
  std::array<char, 512> key{};
  std::uint32_t flags = 0;
  PmixValue value;
};

using PmixDone = void (*)(PmixStatus status, void* context);

// Functions of libpmix.so.2.
struct PmixLibrary {
  PmixStatus (*init)(PmixProcess* self, PmixInfo* infos, std::size_t n_infos);
  PmixStatus (*finalize)(const PmixInfo* infos, std::size_t n_infos);
  PmixStatus (*put)(std::uint8_t scope, const char* key, PmixValue* value);
  PmixStatus (*commit)();
  // Calls `done` once, on the library's thread, if the result is kPmixSuccess. `infos` must stay
  // valid until then.
  PmixStatus (*fence)(const PmixProcess* processes,
                      std::size_t n_processes,
                      const PmixInfo* infos,
                      std::size_t n_infos,
                      PmixDone done,
                      void* context);
  // The caller owns the value, which was allocated with malloc().
  PmixStatus (*get)(const PmixProcess* process,
                    const char* key,
                    const PmixInfo* infos,
                    std::size_t n_infos,
                    PmixValue** value);
  const char* (*describe)(PmixStatus status);
};

// State of a fence. Lives until the library has called back, even if this process has stopped
// waiting.
struct PmixFence {
  PmixInfo collect;
  std::shared_ptr<PmixFence> self;  // The library's share of the ownership.
  Mutex mutex;
  Condition is_over;
  bool is_done UNISONO_GUARDED_BY(mutex) = false;
  PmixStatus status UNISONO_GUARDED_BY(mutex) = kPmixSuccess;
};

// After a fence that collects, the daemon has all values.
constexpr std::chrono::seconds kGetTimeout{60};

PmixLibrary load() {
  try {
    const LoadedLibrary file("libpmix.so.2");
    PmixLibrary library{};
    file.find("PMIx_Init", library.init);
    file.find("PMIx_Finalize", library.finalize);
    file.find("PMIx_Put", library.put);
    file.find("PMIx_Commit", library.commit);
    file.find("PMIx_Fence_nb", library.fence);
    file.find("PMIx_Get", library.get);
    file.find("PMIx_Error_string", library.describe);
    return library;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("PMIx can't be loaded: {}", error.what()));
  }
}

// Loaded by the first call and never unloaded.
const PmixLibrary& pmix_library() {
  static const PmixLibrary library = load();
  return library;
}

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

class PmixKeyValueSpace final : public KeyValueSpace {
 public:
  explicit PmixKeyValueSpace(MpiState mpi);

  void put(const std::string& key, const std::string& text, Deadline deadline) override;
  bool fence(Deadline deadline) override;
  std::string get(const std::string& key, Deadline deadline) override;
  void leave() noexcept override;

 private:
  const PmixLibrary& library_;
  MpiState mpi_;
  std::string name_space_;            // The launcher's name of the job.
  std::shared_ptr<PmixFence> fence_;  // Shared with the library until the fence is over.
};

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

}  // namespace

std::unique_ptr<KeyValueSpace> open_pmix(MpiState mpi) {
  return std::make_unique<PmixKeyValueSpace>(mpi);
}

}  // namespace unisono::rendezvous
