#pragma once

namespace unisono::launch {

/// What a rank is bound to.
enum class BindTo {
  kNone,
  kCore,    ///< Cores of its own.
  kNuma,    ///< All cores of the NUMA nodes that these are of.
  kSocket,  ///< All cores of their sockets.
};

}  // namespace unisono::launch
