#pragma once

#include <cstddef>
#include <string>

namespace unisono::store {

/// The clients to which a server gave no entry, for those who wait for one of them.
class TurnedAway {
 public:
  /// One more. Returns what there is to say of all: "the store has turned 2 clients away, the last
  /// from 10.0.0.3:4123: ...".
  [[nodiscard]] std::string add(const std::string& peer, const std::string& reason);

 private:
  std::size_t n_clients_ = 0;
};

}  // namespace unisono::store
