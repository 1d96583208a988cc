#pragma once

#include <functional>
#include <optional>
#include <string>

namespace unisono::store {

/// What became of a key that is watched.
struct KeyChange {
  std::string key;
  std::optional<std::string> before;  ///< Nothing where there was no value.
  std::optional<std::string> after;   ///< Nothing where the key was deleted.

  friend bool operator==(const KeyChange&, const KeyChange&) = default;
};

/// Runs on a thread of the store, one change after the other. Does not throw, and destroys no
/// watch.
using WatchCallback = std::function<void(const KeyChange&)>;

/// Holds a key under observation. Once its destructor returns, the callback does not run any more.
class Watch {
 public:
  Watch() = default;
  virtual ~Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  Watch(Watch&&) = delete;
  Watch& operator=(Watch&&) = delete;
};

}  // namespace unisono::store
