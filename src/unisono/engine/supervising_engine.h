#pragma once

#include <cstdint>
#include <optional>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/operation.h"

namespace unisono::engine {

/// One operation that an engine carries out by other means than shared memory and tcp, as a
/// library's non-blocking calls. See SupervisingEngine::supervise().
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

/// An engine that watches over the ranks of its group, also while another engine carries out an
/// operation by means of its own.
class SupervisingEngine : public Engine {
 public:
  /// Has another engine carry out the operation, and waits for it as execute() would: ranks that
  /// call something else, die, leave or are late are errors that say so. May be called instead of
  /// execute(), operation by operation, the same on all ranks.
  ///
  /// Throws what execute() throws, and what `supervised` throws.
  virtual void supervise(const Operation& operation,
                         TimeLimit limit,
                         Caller caller,
                         SupervisedOperation& supervised) = 0;

  /// For another engine that waits, in its execute(), for what another library does: throws what
  /// has ended the group meanwhile, as the failure of another rank. Returns what is to be said of a
  /// rank that has left in good order, perhaps after its part.
  [[nodiscard]] virtual std::optional<Error> look_at_ranks() = 0;
};

}  // namespace unisono::engine
