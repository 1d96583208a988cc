#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"
#include "unisono/net/wakeup.h"

namespace unisono::ucx {

class UcxStream;

/// Moves what UCX has taken, and answers what peers' UCX asks, while the ranks' own threads do
/// something else: a kernel's TCP does the same. The process has one, while it has streams.
class ProgressThread {
 public:
  static ProgressThread& instance();

  /// Throws Error(kSystem) where no thread can be started.
  void add(UcxStream& stream) UNISONO_EXCLUDES(changing_) UNISONO_EXCLUDES(mutex_);

  /// Does nothing with the stream any more.
  void remove(UcxStream& stream) noexcept UNISONO_EXCLUDES(changing_) UNISONO_EXCLUDES(mutex_);

  /// There is something to do for a stream. Any thread, while it has one.
  void wake() const noexcept { wakeup_->wake(); }

 private:
  void run() noexcept UNISONO_EXCLUDES(mutex_);

  Mutex changing_;
  Mutex mutex_;
  std::vector<UcxStream*> streams_ UNISONO_GUARDED_BY(mutex_);
  std::unique_ptr<net::Wakeup> wakeup_;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_ UNISONO_GUARDED_BY(changing_);
};

}  // namespace unisono::ucx
