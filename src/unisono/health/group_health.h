#pragma once

#include <cstdint>
#include <span>

#include "unisono/base/error.h"
#include "unisono/base/wait_record.h"
#include "unisono/health/wait_id.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {

/// What an engine asks of its group, and tells it: how the other ranks are, and in what this one
/// waits. Called by any thread; nothing of it while an operation or message gets on.
class GroupHealth {
 public:
  GroupHealth() = default;
  virtual ~GroupHealth() = default;
  GroupHealth(const GroupHealth&) = delete;
  GroupHealth& operator=(const GroupHealth&) = delete;
  GroupHealth(GroupHealth&&) = delete;
  GroupHealth& operator=(GroupHealth&&) = delete;

  /// Sets the group's failure if another rank is known to have given up. For a rank that waits.
  virtual void listen() noexcept = 0;

  /// Adds to an error what other ranks say of it. Takes half a second at most.
  [[nodiscard]] virtual Error explain(const Error& error) noexcept = 0;

  /// Whether none of this rank's groups has been asked this of a failure with the same cause.
  [[nodiscard]] virtual bool is_news(const Error& failure) = 0;

  /// Where a rank of this node is in the group's operations.
  [[nodiscard]] virtual transport::RankProgress progress_of(int rank) const = 0;

  /// Whether a rank of this node has left the group. What it sent before is visible then.
  [[nodiscard]] virtual bool has_left(int rank) const = 0;

  /// Notes for which ranks an operation waits, on the thread that executes it.
  virtual void note_late(std::uint64_t sequence, std::span<const int> late_ranks) = 0;

  /// Has somebody look whether this operation or receive waits in vain. Does not wait.
  virtual void look_for_cycle(const WaitId& wait) = 0;

  /// Has the launcher see that this operation or message waits long, until hide_wait(). Here `late`
  /// are ranks of the group, and `seen` is left out: it is now.
  virtual void show_wait(const WaitId& id, LongWait wait) const = 0;
  virtual void hide_wait(const WaitId& id) const noexcept = 0;
};

}  // namespace unisono::health
