#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/deadline.h"
#include "unisono/launch/cause.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/worker_group.h"

namespace unisono::launch {

/// How a generation of this node's ranks ended.
struct GroupEnd {
  std::optional<Cause> cause;  ///< Nothing: all were done.
  std::string failure;  ///< One line about a cause that a restart may mend; empty: it is another.
  std::string report;   ///< All about the cause.
  std::chrono::nanoseconds lifetime{};
  bool may_go_on = true;  ///< This node can run another one, and nobody wants it to end.
};

/// How the job ended, and what is to be said of it.
struct Outcome {
  int exit_code = 0;
  std::string report = {};
};

/// What a Generations has of its agent while it waits.
struct Waiting {
  /// Runs the agent's loop once, until the deadline at most. False when this node is to end.
  std::function<bool(Deadline until)> run_once;
  std::function<void(std::string_view text)> say;
};

/// Decides which generations of a job's ranks this node runs. One thread, that of the agent's loop.
class Generations {
 public:
  Generations() = default;
  virtual ~Generations() = default;
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;
  Generations(Generations&&) = delete;
  Generations& operator=(Generations&&) = delete;

  /// The next one, after a wait; nothing when the job is over, or this node is to end.
  [[nodiscard]] virtual std::optional<JobLayout> next(const Waiting& waiting) = 0;

  /// To be called whenever the loop has run while the ranks do: the group may have to end, or
  /// others may have to hear that it ends.
  virtual void watch(WorkerGroup& group, const Waiting& waiting) = 0;

  /// No rank of the generation is left.
  virtual void take_end(const GroupEnd& end) = 0;

  /// How the job ended; nothing where this node has to end for a reason of its own.
  [[nodiscard]] virtual std::optional<Outcome> outcome() const = 0;
};

}  // namespace unisono::launch
