#include "unisono/comm/side_store.h"

#include <exception>
#include <utility>

#include "unisono/store/store.h"

namespace unisono::comm {

store::Store* SideStore::try_open() noexcept {
  if (connect_ != nullptr) {
    try {
      store_ = std::exchange(connect_, nullptr)();
    } catch (const std::exception&) {
      store_.reset();
    }
  }
  return store_.get();
}

void SideStore::give_up() noexcept {
  connect_ = nullptr;
  store_.reset();
}

}  // namespace unisono::comm
