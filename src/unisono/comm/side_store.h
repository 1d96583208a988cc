#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "unisono/base/mutex.h"
#include "unisono/store/store.h"

namespace unisono::comm {

/// A second connection to the job's store, for what ranks tell each other of failures and long
/// waits: opened when first needed, and given up at the first error. Thread-safe.
class SideStore {
 public:
  using Connect = std::function<std::shared_ptr<store::Store>()>;

  explicit SideStore(Connect connect) : connect_(std::move(connect)) {}

  /// Null where the store can't be reached.
  [[nodiscard]] std::shared_ptr<store::Store> try_open() noexcept UNISONO_EXCLUDES(mutex_);

  /// After an error: later calls find no store.
  void give_up() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  Connect connect_ UNISONO_GUARDED_BY(mutex_);
  std::shared_ptr<store::Store> store_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
