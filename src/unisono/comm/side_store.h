#pragma once

#include <functional>
#include <memory>

#include "unisono/store/store.h"

namespace unisono::comm {

/// A second connection to the job's store, for what ranks tell each other of failures and long
/// waits: opened when first needed, and given up at the first error. Not thread-safe.
class SideStore {
 public:
  using Connect = std::function<std::shared_ptr<store::Store>()>;

  explicit SideStore(Connect connect) : connect_(std::move(connect)) {}

  /// Null where the store can't be reached.
  [[nodiscard]] store::Store* try_open() noexcept;

  /// After an error: later calls find no store.
  void give_up() noexcept;

 private:
  Connect connect_;
  std::shared_ptr<store::Store> store_;
};

}  // namespace unisono::comm
