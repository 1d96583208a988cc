#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

namespace unisono::parallel {

/// A path of outputs from a stage to a later stage. Gradients return on the same path.
struct Route {
  int from;
  int to;
  /// The number of the output. std::nullopt: all outputs without a route of their own.
  std::optional<int> output = {};
};

/// Returns the routes from each stage to the next, followed by the skip connections: the order of a
/// stage's inputs. Throws Error(kInvalidArgument) for an invalid skip connection.
[[nodiscard]] std::vector<Route> routes_of(int n_stages, const std::vector<SkipConnection>& skips);

/// Returns the indices of the routes that end, or begin, at a stage.
[[nodiscard]] std::vector<int> routes_into(int stage, const std::vector<Route>& routes);
[[nodiscard]] std::vector<int> routes_out_of(int stage, const std::vector<Route>& routes);

/// Returns the indices of the outputs, among a stage's `n_outputs` outputs, that take the route.
/// Throws Error(kInvalidArgument) for too few outputs.
[[nodiscard]] std::vector<int> outputs_on(const Route& route,
                                          const std::vector<Route>& routes,
                                          int n_outputs);

/// The outputs of a chunk from one stage to another, or the gradients of these outputs. The tensors
/// have no graph.
struct StageMessage {
  bool has_chunk = true;
  std::vector<at::Tensor> tensors = {};
  std::vector<bool> needs_gradient = {};  // One for each tensor.
  std::vector<Work> received = {};        // Receives of tensors on a device; see Mailbox::take().
};

/// The messages that have arrived on a rank, by slot. Shared by a Transfers and its operations in
/// flight. Thread-safe: threads of the process group store messages, the thread that runs the step
/// removes messages. An error of an operation ends all waits.
class Mailbox {
 public:
  explicit Mailbox(std::size_t n_slots) : slots_(n_slots), in_flight_(n_slots) {}

  /// Records that `part` of a message for the slot is in flight.
  void expect(std::size_t slot, const Work& part) UNISONO_EXCLUDES(mutex_);

  void put(std::size_t slot, StageMessage message) UNISONO_EXCLUDES(mutex_);

  /// Ends all waits with the error.
  void fail(std::exception_ptr error) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool has(std::size_t slot) UNISONO_EXCLUDES(mutex_);

  /// Removes the message of a slot. Later work of the calling thread on a device follows the
  /// receives of the message's tensors.
  [[nodiscard]] StageMessage take(std::size_t slot) UNISONO_EXCLUDES(mutex_);

  /// Blocks until a message has arrived since the last call. Throws the error of fail(). The
  /// operations in flight have timeouts, so the wait needs no timeout.
  ///
  /// `slots`: the slots with messages that let the caller continue. Stall reports and the launcher
  /// name the operations in flight for these slots as the operations that the rank waits for.
  void wait(std::span<const std::size_t> slots) UNISONO_EXCLUDES(mutex_);

  void throw_if_failed() UNISONO_EXCLUDES(mutex_);

 private:
  bool sleep(Deadline long_from, std::span<const std::size_t> slots, WaitMark& mark)
      UNISONO_EXCLUDES(mutex_);

  Mutex mutex_;
  Condition changed_;
  std::vector<std::optional<StageMessage>> slots_ UNISONO_GUARDED_BY(mutex_);
  std::vector<std::vector<Work>> in_flight_ UNISONO_GUARDED_BY(mutex_);  // By slot.
  // True while a wait is long enough to be marked for reports.
  bool is_long_ UNISONO_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ UNISONO_GUARDED_BY(mutex_);
  std::uint64_t n_arrived_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::uint64_t n_seen_ UNISONO_GUARDED_BY(mutex_) = 0;
};

/// The slot of a message in the receiver's mailbox, which is also the message's tag, and the name
/// in error messages.
struct MessageLabel {
  std::size_t slot;
  std::string text;
};

/// The messages of one step. Sends do not block; receives progress while the rank computes. Used on
/// the thread of the step; receives complete on threads of the process group and may outlive the
/// object. Errors of operations are thrown by the waits of the mailbox and by finish().
class Transfers {
 public:
  /// `device`: the device of received tensors. Their memory belongs to the stream that is the
  /// calling thread's when receive() is called.
  Transfers(ProcessGroup& group,
            std::size_t n_slots,
            std::optional<std::chrono::milliseconds> timeout,
            at::Device device = at::kCPU)
      : group_(&group),
        timeout_(timeout),
        device_(device),
        mailbox_(std::make_shared<Mailbox>(n_slots)) {}

  /// Starts to receive a message into the mailbox. Does not block.
  void receive(int from, const MessageLabel& label);

  /// Starts to send a message. The tensors must not change until finish(). Tensors that are not
  /// contiguous are copied.
  void send(int to, const MessageLabel& label, const StageMessage& message);

  /// Frees the memory of completed sends on the calling thread, so that the calling thread's
  /// AllocationMeter counts the release.
  void release_sent();

  /// Waits for all sends. Throws the error of a send.
  void finish();

  /// Waits for the message of a slot and returns the message.
  [[nodiscard]] StageMessage await(std::size_t slot);

  [[nodiscard]] Mailbox& mailbox() { return *mailbox_; }

 private:
  // One part of a message in flight, and the tensor of the part, if the part is a tensor.
  struct Send {
    std::string text;
    Work work;
    std::shared_ptr<at::Tensor> tensor;
  };

  void release_first();

  ProcessGroup* group_;
  std::optional<std::chrono::milliseconds> timeout_;
  at::Device device_;
  std::shared_ptr<Mailbox>
      mailbox_;  // Shared with operations in flight, which may outlive the step.
  std::deque<Send> sends_;
};

/// Returns the error with the operation's name added, such as "recv of outputs of chunk 3 from
/// stage 0 to stage 1: ...", unless the error names the operation already. A group that failed
/// before the call reports the name of another operation.
[[nodiscard]] std::exception_ptr labelled_error(const std::string& call,
                                                const std::string& label,
                                                const std::exception_ptr& error);

/// Calls `body`. Errors are rethrown as labelled_error().
template <class Body>
auto with_label(const std::string& call, const std::string& label, const Body& body) {
  try {
    return body();
  } catch (const std::exception&) {
    std::rethrow_exception(labelled_error(call, label, std::current_exception()));
  }
}

}  // namespace unisono::parallel
