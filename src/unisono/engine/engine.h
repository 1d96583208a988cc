#pragma once

#include <cstdint>
#include <span>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/operation.h"

namespace unisono::engine {

/// Which thread executes the operation; decides whether it may spin.
enum class Caller {
  kUser,     ///< The thread that called the operation: it may spin for a short while.
  kProgress  ///< A thread beside it: it leaves the processor to the rank's computation.
};

/// Executes a group's operations and passes messages between two of its ranks. One thread at a
/// time, the holder of the drive token, but for messages.
class Engine {
 public:
  Engine() = default;
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;

  /// Carries out one operation; returns when this rank's part in it has ended.
  ///
  /// Throws Error; the group is then to be closed, as ranks no longer agree on where they are.
  virtual void execute(const Operation& operation, TimeLimit limit, Caller caller) = 0;

  /// Memory on which operations are fastest. Thread-safe.
  [[nodiscard]] virtual Buffer allocate(std::int64_t count, DType dtype) = 0;

  /// Throws Error(kInvalidArgument) for an operation that can't be carried out; the text says only
  /// why. Thread-safe.
  virtual void check(const Operation& operation) const = 0;

  /// How the last reduction was carried out; Algorithm::kAuto before the first, and where the
  /// engine does not say. Thread-safe.
  [[nodiscard]] virtual Algorithm last_algorithm() const noexcept { return Algorithm::kAuto; }

  /// Passes a message, and returns when this rank's part in it has ended: for a receive, the rank
  /// that it came from. Thread-safe.
  ///
  /// Throws Error: kInvalidArgument, whose text says only why, for one that can't be passed, as all
  /// are where this is not overridden. Any other closes the group.
  virtual int pass_message(const MessageCall& /*call*/) { throw no_messages(); }

  /// Begins messages, all of them before it goes on with any; their handles hear how they end.
  /// Thread-safe. Throws as pass_message() does.
  virtual void begin_messages(std::span<const MessageCall> /*calls*/) { throw no_messages(); }

  /// Tells the other ranks that this rank's group failed, and why. After the last execute().
  virtual void abort(const Error& reason) noexcept = 0;

  /// Tells the other ranks that this rank leaves: in good order, unless it has aborted. The last
  /// call; takes a fraction of a second at most.
  virtual void leave() noexcept = 0;

 private:
  static Error no_messages() {
    return {ErrorCode::kInvalidArgument, "the group's backend passes no messages"};
  }
};

}  // namespace unisono::engine
