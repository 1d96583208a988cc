#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/wait_id.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {

/// A wait that is long, as the launcher may be told of it.
struct ShownWait {
  Deadline::Clock::time_point since;  ///< Nothing has come since then.
  std::span<const int> late_ranks;
  std::string_view operation;
};

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

  /// Asks a rank what it does. Does not wait: the answer goes to the log.
  virtual void ask(int rank) noexcept = 0;

  /// Asks ranks what they do, for 0.1 s at most. Of those of other nodes that it has asked: a
  /// phrase that follows the rank's name; of those of this node: a RankProgress's `elsewhere`.
  [[nodiscard]] virtual std::map<int, std::string> hear(std::span<const int> ranks) = 0;

  /// Notes for which ranks an operation waits, on the thread that executes it.
  virtual void note_late(std::uint64_t sequence, std::span<const int> late_ranks) = 0;

  /// Has somebody look whether this operation or receive waits in vain. Does not wait.
  virtual void look_for_cycle(const WaitId& wait) = 0;

  /// Has the launcher see that this operation or message waits long, until hide_wait().
  virtual void show_wait(const WaitId& id, const ShownWait& wait) const = 0;
  virtual void hide_wait(const WaitId& id) const noexcept = 0;

  /// Since when a thread does nothing else until this asynchronous message has ended; nothing: none
  /// does.
  [[nodiscard]] virtual std::optional<Deadline::Clock::time_point> waited_since(
      const WaitId& message) const = 0;
};

}  // namespace unisono::engine
