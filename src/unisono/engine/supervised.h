#pragma once

#include <cstdint>

#include "unisono/engine/operation.h"

namespace unisono::engine {

/// One operation that an engine carries out by other means than shared memory and tcp, as a
/// library's non-blocking calls. See Engine::supervise().
class SupervisedOperation {
 public:
  SupervisedOperation() = default;
  virtual ~SupervisedOperation() = default;
  SupervisedOperation(const SupervisedOperation&) = delete;
  SupervisedOperation& operator=(const SupervisedOperation&) = delete;
  SupervisedOperation(SupervisedOperation&&) = delete;
  SupervisedOperation& operator=(SupervisedOperation&&) = delete;

  /// Whether ranks of other nodes have to have called it, too, before it begins; the same on all
  /// ranks. For a begin that waits for them without a deadline.
  [[nodiscard]] virtual bool meets_all() const { return false; }

  /// Begins it: every rank of this node has called the same. `operation` is the packed one where a
  /// coalesced operation was called, and lives until the end; `group` is the number of the group,
  /// the same on all its ranks and no other group's.
  virtual void begin(const Operation& operation, std::uint32_t group) = 0;

  /// Does what can be done without waiting. Whether the operation is done.
  [[nodiscard]] virtual bool advance() = 0;
};

}  // namespace unisono::engine
