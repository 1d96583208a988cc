#pragma once

#include <cstdint>
#include <functional>

#include "unisono/base/deadline.h"
#include "unisono/store/change.h"
#include "unisono/store/store_map.h"

namespace unisono::store {

enum class Access : std::uint8_t { kLook, kChange };

/// A call of a MapStore.
struct MapCall {
  Access access;  ///< What the call will need at first, most likely.
  Deadline deadline;
  ClientId client = kNobody;  ///< Who may wait in the map while the call lasts, and no longer.

  /// One try. It looks at the map, puts what is to be done into `change`, which is empty, and
  /// returns true when that is all. If it returns false it is called again once the map has
  /// changed, by its own change or by another's.
  ///
  /// The change that the first attempt of a kChange call wants is made, unless there is an error.
  /// Other attempts may be repeated instead.
  std::function<bool(StoreMap& map, Change& change)> attempt;
};

}  // namespace unisono::store
