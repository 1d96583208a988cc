#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "unisono/base/error.h"

namespace unisono {

namespace launch {
class RankProcesses;

/// Default of the time between asking ranks to end and killing them.
inline constexpr std::chrono::seconds kDefaultGrace{30};
}  // namespace launch

/// Options of spawn().
struct SpawnOptions {
  /// Number of ranks to start.
  int nprocs = 1;
  bool join = true;  ///< spawn() waits until the ranks have ended.
  /// Behaviour of ~SpawnContext() if ranks are still running: true, the ranks are ended; false, the
  /// destructor waits for them.
  bool daemon = false;
  /// Time between asking ranks to end (SIGTERM) and killing them. A line on stderr names the killed
  /// ranks.
  std::chrono::milliseconds grace = launch::kDefaultGrace;
};

/// A rank failed. The message has the rank, the process ID, and the exception, exit code or signal.
class SpawnError : public Error {
 public:
  /// `rank` is the first rank that failed.
  SpawnError(const std::string& message, int rank, int exit_code)
      : Error(ErrorCode::kPeerLost, message), rank_(rank), exit_code_(exit_code) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }

  /// Returns the exit code in the form of a shell: 128 + the number of the signal if a signal ended
  /// the rank.
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int rank_;
  int exit_code_;
};

/// Handle of the ranks that spawn() has started. Not thread-safe. join() throws the error of a
/// failed rank.
class SpawnContext {
 public:
  /// Creates a handle without ranks.
  SpawnContext();

  SpawnContext(SpawnContext&& other) noexcept;
  SpawnContext& operator=(SpawnContext&& other) noexcept;
  SpawnContext(const SpawnContext&) = delete;
  SpawnContext& operator=(const SpawnContext&) = delete;

  /// Ends the ranks or waits for them, see SpawnOptions::daemon. Does not throw; call join() before
  /// to learn of a failed rank.
  ~SpawnContext();

  /// Waits until all ranks have ended. Returns false if `timeout` has passed and a rank is still
  /// running.
  ///
  /// Throws SpawnError for the first rank that failed, after all other ranks have ended.
  [[nodiscard]] bool join(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  /// Returns the process IDs of the ranks, in rank order.
  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  explicit SpawnContext(std::unique_ptr<launch::RankProcesses> ranks);
  friend SpawnContext spawn_ranks(const std::function<void(int)>& fn, const SpawnOptions& options);

  std::unique_ptr<launch::RankProcesses> ranks_;
};

/// spawn() for a function with the rank as its only argument.
[[nodiscard]] SpawnContext spawn_ranks(const std::function<void(int)>& fn,
                                       const SpawnOptions& options);

namespace detail {

template <class T>
inline constexpr bool kIsTuple = false;
template <class... Ts>
inline constexpr bool kIsTuple<std::tuple<Ts...>> = true;

}  // namespace detail

/// Runs fn(rank, args...) on `options.nprocs` ranks, each a process of its own on this machine, and
/// serves their store, so that init_process_group() in fn finds the other ranks. Corresponds to
/// torch.multiprocessing.spawn() in Python.
///
/// A rank is this program, executed again with the same arguments. It runs main() up to this call;
/// here it runs fn and then ends the process instead of returning. Code before the call therefore
/// runs on every rank and must reach this call in the same way; code after the call does not run on
/// ranks. A program may call spawn() several times, but not in fn. Ranks have no stdin, and end
/// with this process even if it is killed.
///
/// If a rank throws, returns an exit code other than 0, or is ended by a signal, the other ranks
/// are ended.
///
/// Throws SpawnError for a failed rank if options.join is true (otherwise join() throws it),
/// Error(kInvalidArgument) for fewer than one rank and for a call in a rank, Error(kSystem) if a
/// process cannot be started.
template <class Function, class Arguments = std::tuple<>>
SpawnContext spawn(Function fn, Arguments args = {}, const SpawnOptions& options = {}) {
  static_assert(detail::kIsTuple<Arguments>,
                "spawn: args is a std::tuple, also of one: std::tuple(5), not 5");
  return spawn_ranks(
      [fn = std::move(fn), args = std::move(args)](int rank) {
        std::apply([&](const auto&... each) { fn(rank, each...); }, args);
      },
      options);
}

}  // namespace unisono
