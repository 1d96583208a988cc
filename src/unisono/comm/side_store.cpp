#include "unisono/comm/side_store.h"

#include <exception>
#include <memory>
#include <utility>

#include "unisono/base/mutex.h"
#include "unisono/store/store.h"

namespace unisono::comm {

std::shared_ptr<store::Store> SideStore::try_open() noexcept {
  // Held while connecting: who else needs the store waits for the same connection.
  const MutexLock lock(mutex_);
  if (connect_ != nullptr) {
    try {
      store_ = std::exchange(connect_, nullptr)();
    } catch (const std::exception&) {
      store_.reset();
    }
  }
  return store_;
}

void SideStore::give_up() noexcept {
  const MutexLock lock(mutex_);
  connect_ = nullptr;
  store_.reset();
}

}  // namespace unisono::comm
