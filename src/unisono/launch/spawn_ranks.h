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

/// Time between asking ranks to end and killing them, where the user gives none.
inline constexpr std::chrono::seconds kDefaultGrace{30};
}  // namespace launch

struct SpawnOptions {
  int nprocs = 1;
  bool join = true;  ///< spawn() waits for the ranks' end.
  /// What ranks that still run get from the end of their SpawnContext: true, they are ended; false,
  /// it waits for them.
  bool daemon = false;
  /// Time between asking ranks to end (SIGTERM) and killing them. A line on stderr names those that
  /// are killed.
  std::chrono::milliseconds grace = launch::kDefaultGrace;
};

/// A rank failed. The message says which one, its process id, and what it threw, its exit code or
/// the signal that ended it.
class SpawnError : public Error {
 public:
  SpawnError(const std::string& message, int rank, int exit_code)
      : Error(ErrorCode::kPeerLost, message), rank_(rank), exit_code_(exit_code) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }

  /// As a shell has it: 128 + the number of the signal that ended the rank.
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int rank_;
  int exit_code_;
};

/// Ranks that spawn() has started. One thread at a time.
class SpawnContext {
 public:
  /// No ranks.
  SpawnContext();

  SpawnContext(SpawnContext&& other) noexcept;
  SpawnContext& operator=(SpawnContext&& other) noexcept;
  SpawnContext(const SpawnContext&) = delete;
  SpawnContext& operator=(const SpawnContext&) = delete;

  /// See SpawnOptions::daemon. Throws nothing: join() before it says whether a rank failed.
  ~SpawnContext();

  /// Waits until all ranks have ended. False when `timeout` is over and some still run.
  ///
  /// Throws SpawnError when a rank has failed: the first one, after all others were ended.
  [[nodiscard]] bool join(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  /// The ranks' process ids, in the order of the ranks.
  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  explicit SpawnContext(std::unique_ptr<launch::RankProcesses> ranks);
  friend SpawnContext spawn_ranks(const std::function<void(int)>& fn, const SpawnOptions& options);

  std::unique_ptr<launch::RankProcesses> ranks_;
};

/// spawn() for a function that needs nothing but the rank.
[[nodiscard]] SpawnContext spawn_ranks(const std::function<void(int)>& fn,
                                       const SpawnOptions& options);

namespace detail {

template <class T>
inline constexpr bool kIsTuple = false;
template <class... Ts>
inline constexpr bool kIsTuple<std::tuple<Ts...>> = true;

}  // namespace detail

/// Runs fn(rank, args...) on `options.nprocs` ranks, each a process of its own on this machine, and
/// serves their store: init_process_group() in fn finds the others. What torch.multiprocessing's
/// spawn() is in Python.
///
/// A rank is this program executed again with the same arguments: it runs main() up to this call,
/// and in it, instead of the return, fn and the end of the process. So what stands before the call
/// runs on every rank, too, and has to come to the same; what stands behind it does not. A program
/// may call it several times, not in fn. Ranks have no stdin, and end with this process, even if it
/// is killed.
///
/// When a rank throws, exits with another code than 0 or is ended by a signal, the others are
/// ended.
///
/// Throws SpawnError for that, if options.join, else join() does; Error: kInvalidArgument for less
/// than one rank and a call in a rank, kSystem when a process can't be started.
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
