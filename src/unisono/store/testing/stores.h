#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/store.h"

namespace unisono::store::testing {

/// A store for a test, and handles to it, as ranks have them.
class Stores {
 public:
  Stores() = default;
  virtual ~Stores() = default;
  Stores(const Stores&) = delete;
  Stores& operator=(const Stores&) = delete;
  Stores(Stores&&) = delete;
  Stores& operator=(Stores&&) = delete;

  [[nodiscard]] virtual std::shared_ptr<Store> open() = 0;

  /// What messages of the store begin with.
  [[nodiscard]] virtual std::string name() const = 0;

  /// What messages call a key.
  [[nodiscard]] virtual std::string shown(const std::string& key) const { return key; }
};

struct StoreKind {
  const char* name;
  std::unique_ptr<Stores> (*make)();

  friend std::ostream& operator<<(std::ostream& out, const StoreKind& kind) {
    return out << kind.name;
  }
};

/// Every implementation of Store, those on top of others on several.
[[nodiscard]] std::vector<StoreKind> all_kinds();

/// When a test that waits for this has failed.
[[nodiscard]] Deadline soon();

/// For waits that are to be in vain.
[[nodiscard]] Deadline at_once();

/// This process's descriptors of a file.
[[nodiscard]] std::vector<int> descriptors_of(const std::string& path);

}  // namespace unisono::store::testing
