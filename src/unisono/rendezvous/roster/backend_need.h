#pragma once

#include <map>
#include <string>
#include <vector>

namespace unisono::rendezvous {

/// Whether a rank can have the backend that it was to have.
struct BackendNeed {
  std::string obstacle = {};  ///< Why it can't, of 512 bytes at most; empty: it can.
  bool falls_back = true;     ///< Whether it has the native one where some rank can't.
};

/// Why ranks can't have their backend, and which: the same on all ranks.
using Obstacles = std::map<std::string, std::vector<int>>;

}  // namespace unisono::rendezvous
