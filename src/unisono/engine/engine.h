#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {

/// A call of an operation on this rank. Its buffers have been checked against the descriptor.
struct Operation {
  transport::Descriptor descriptor = {};
  std::uint64_t sequence = 0;  ///< Number in the group, from 1, equal on every rank.
  /// The whole contribution of this rank; the same buffer as `out` in a broadcast. Set in a
  /// reduce_scatter only if the blocks are contiguous.
  Buffer in = {};
  Buffer out = {};
  /// Blocks by rank. `ins[r]` is the block for rank r (scatter on the root, all_to_all,
  /// reduce_scatter), `outs[r]` the block from rank r (gather on the root, all_gather, all_to_all).
  /// In a coalesced operation, the buffers of the operation's parts; `in` and `out` are then empty.
  std::vector<Buffer> ins = {};
  std::vector<Buffer> outs = {};
  double factor = 1;                                    ///< For kPremulSum.
  std::shared_ptr<const UserReduction> user = nullptr;  ///< For kUser.
  std::string label = {};  ///< The caller's name of the buffer, for logs and errors.
};

/// Returns whether a buffer of the operation is on a GPU.
[[nodiscard]] inline bool is_on_gpu(const Operation& operation) {
  const auto is_there = [](const Buffer& buffer) {
    return buffer.device.type == DeviceType::kCuda;
  };
  return is_there(operation.in) || is_there(operation.out) ||
         std::any_of(operation.ins.begin(), operation.ins.end(), is_there) ||
         std::any_of(operation.outs.begin(), operation.outs.end(), is_there);
}

/// Returns the buffers that must have equal sizes on all ranks; empty on some ranks of a rooted
/// operation.
[[nodiscard]] inline std::span<const Buffer> agreed_blocks(const Operation& operation) {
  return transport::traits_of(operation.descriptor.kind).gathers ? operation.outs : operation.ins;
}

/// Source of a receive that takes a message from any rank.
inline constexpr int kAnyRank = -1;

/// Handle of an asynchronous message, on which the caller waits. The engine reports begin and end
/// of the message to the handle.
class MessageHandle {
 public:
  MessageHandle() = default;
  virtual ~MessageHandle() = default;
  MessageHandle(const MessageHandle&) = delete;
  MessageHandle& operator=(const MessageHandle&) = delete;
  MessageHandle(MessageHandle&&) = delete;
  MessageHandle& operator=(MessageHandle&&) = delete;

  /// Begins the message. `id` names it among the rank's waits. Called first, before another thread
  /// can access the message.
  virtual void begin(const transport::WaitId& id) = 0;

  /// Sets a check for the first wait after a successful end. The wait rethrows the check's
  /// exceptions.
  virtual void set_check(std::function<void()> check) = 0;

  /// Ends the message: `error` is null on success, and `source` is the sending rank of a receive.
  /// Called once, without a lock.
  virtual void complete(int source, std::exception_ptr error) = 0;
};

/// Validated arguments of a send or receive.
struct MessageCall {
  bool is_send;
  int peer;  ///< The other rank; kAnyRank in a receive from any rank.
  int tag;
  const Buffer& buffer;
  const std::string& label;  ///< The caller's name of the buffer, for logs and errors.
  std::chrono::milliseconds timeout = {};
  std::shared_ptr<MessageHandle> handle = nullptr;  ///< Set for an asynchronous message.
};

/// The thread that executes the operation; decides whether the wait may spin.
enum class Caller {
  kUser,     ///< The thread that called the operation: may spin for a short while.
  kProgress  ///< A progress thread: leaves the processor to the rank's computation.
};

/// Executes a group's operations on this rank, and passes messages between two ranks of the group.
///
/// The group owns its engine through a shared_ptr. The holder of the drive token calls execute(),
/// abort() and leave(), so a single thread does so at any time. All other functions are
/// thread-safe. An error of execute() or of a message closes the group, except where a comment
/// states otherwise.
class Engine {
 public:
  Engine() = default;
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;

  /// Executes an operation and returns when this rank's part has ended.
  ///
  /// Throws Error. The caller must then close the group, because the ranks no longer agree on their
  /// position.
  virtual void execute(const Operation& operation, TimeLimit limit, Caller caller) = 0;

  /// Returns memory on which operations are fastest. Thread-safe.
  [[nodiscard]] virtual Buffer allocate(std::int64_t count, DType dtype) = 0;

  /// Throws Error(kInvalidArgument) for an operation that can't be executed; the text contains only
  /// the reason. Thread-safe.
  virtual void check(const Operation& operation) const = 0;

  /// Returns the algorithm of the last reduction; Algorithm::kAuto before the first reduction, and
  /// if the engine does not report algorithms. Thread-safe.
  [[nodiscard]] virtual Algorithm last_algorithm() const noexcept { return Algorithm::kAuto; }

  /// Passes a message and returns when this rank's part has ended. Returns the sending rank of a
  /// receive. Thread-safe.
  ///
  /// Throws Error. kInvalidArgument, with only the reason as text, means that this message can't be
  /// passed; the default implementation always throws it. Any other error closes the group.
  virtual int pass_message(const MessageCall& /*call*/) { throw no_messages(); }

  /// Begins all messages before any message progresses. The handles of the messages receive the
  /// results. Thread-safe. Throws like pass_message().
  virtual void begin_messages(std::span<const MessageCall> /*calls*/) { throw no_messages(); }

  /// Sends this rank's failure and its reason to the other ranks. Called after the last execute().
  virtual void abort(const Error& reason) noexcept = 0;

  /// Announces to the other ranks that this rank leaves: cleanly, unless the rank has aborted. The
  /// last call; takes at most a fraction of a second.
  virtual void leave() noexcept = 0;

 private:
  static Error no_messages() {
    return {ErrorCode::kInvalidArgument, "the group's backend does not support messages"};
  }
};

/// An operation that an engine executes by other means than shared memory and tcp, for example by
/// the non-blocking calls of a library. Owned by the caller of SupervisingEngine::supervise(), and
/// called on that thread.
class SupervisedOperation {
 public:
  SupervisedOperation() = default;
  virtual ~SupervisedOperation() = default;
  SupervisedOperation(const SupervisedOperation&) = delete;
  SupervisedOperation& operator=(const SupervisedOperation&) = delete;
  SupervisedOperation(SupervisedOperation&&) = delete;
  SupervisedOperation& operator=(SupervisedOperation&&) = delete;

  /// Returns whether ranks of other nodes must have called the operation before it begins; equal on
  /// all ranks. For a begin() that waits for these ranks without a deadline.
  [[nodiscard]] virtual bool meets_all() const { return false; }

  /// Begins the operation. Every rank of this node has called the same operation. `operation` is
  /// the packed form of a coalesced operation and lives until the end. `group` is the number of the
  /// group: equal on all its ranks, and unique.
  virtual void begin(const Operation& operation, std::uint32_t group) = 0;

  /// Advances the operation without waiting. Returns whether it is done.
  [[nodiscard]] virtual bool advance() = 0;
};

/// An engine that also supervises the ranks of the group while another engine executes an operation
/// by other means.
class SupervisingEngine : public Engine {
 public:
  /// Returns the prefix of this rank's messages: "[rank 5/8, 1/2 in group 4.3]".
  [[nodiscard]] virtual const std::string& prefix() const = 0;

  /// Executes the operation by means of `supervised`, and waits for it like execute(): a rank that
  /// calls another operation, dies, leaves or is late causes an error that names the rank. The
  /// choice between execute() and supervise() may differ per operation, but must be equal on all
  /// ranks.
  ///
  /// Throws the errors of execute() and of `supervised`.
  virtual void supervise(const Operation& operation,
                         TimeLimit limit,
                         Caller caller,
                         SupervisedOperation& supervised) = 0;

  /// For another engine that waits for a library in execute(). Throws the error that has ended the
  /// group meanwhile, such as the failure of another rank. Returns an error if a peer left cleanly,
  /// perhaps after its part; the caller decides whether it still needs that peer.
  [[nodiscard]] virtual std::optional<Error> check_peers() = 0;
};

}  // namespace unisono::engine
