#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/point_to_point/message_matcher.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/remote/frame_stream.h"
#include "unisono/transport/remote/peer_table.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

/// The sends and receives of a group that have not ended, and the matcher that advances them.
///
/// Owned by PointToPointProgress, for the lifetime of the group. Not thread-safe: the owner's mutex
/// serializes all calls. Never blocks, and wakes no thread. The first error of a message is kept as
/// error(), and nothing moves after it. The owner makes the error the group's failure, and
/// advance() then ends all operations with that failure.
class PendingMessages {
 public:
  using Operations = std::vector<std::unique_ptr<MessageOperation>>;
  using Predicate = std::function<bool(const MessageOperation&)>;

  /// `parts` and `transports` must outlive the object. `has_cores`: the node has a core for each of
  /// its ranks.
  PendingMessages(const NativeParts& parts, GroupTransports& transports, bool has_cores);

  [[nodiscard]] const MessageMatcher& matcher() const { return matcher_; }

  /// The first error of a message.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  /// Returns whether a message or the group has failed.
  [[nodiscard]] bool has_failed() const { return error_.has_value() || group_.failure.is_set(); }

  [[nodiscard]] std::size_t size() const { return operations_.size(); }

  [[nodiscard]] std::size_t n_async() const { return n_async_; }

  /// Returns whether progress requires the connections to other nodes.
  [[nodiscard]] bool needs_network() const { return n_networked_ > 0; }

  /// Sends the message if that needs no wait; otherwise returns false.
  [[nodiscard]] bool send_at_once(const MessageCall& call) {
    return guard(
        [&] { return matcher_.send_at_once(call.peer, call.tag, call.buffer, call.label); });
  }

  /// Polls up to `n_polls` times for the message of a receive that was not posted. Returns
  /// kInvolved if the receive must be posted, for example because other operations are pending.
  [[nodiscard]] Arrival receive_at_once(MessageOperation& receive, int n_polls);

  /// Begins the operation of a blocking call, whose thread then polls by advance(). A poll here as
  /// well would delay the segments of a large message by 7%.
  void post(MessageOperation& operation);

  /// Begins the asynchronous operations, and owns them until take_finished(). Returns false after
  /// an error; the caller then keeps the operations that have not begun.
  [[nodiscard]] bool begin(Operations& operations);

  /// Moves all data that can move. Returns whether any data has moved.
  bool advance();

  /// Advances until no more data moves. Messages that a rank sent before it left may need several
  /// passes.
  void advance_all();

  /// Reads packets while this rank waits for no message between nodes. No operation ends.
  void read_between_calls();

  /// Returns the asynchronous operations that have ended, which the caller must complete.
  [[nodiscard]] Operations take_finished() { return std::exchange(finished_, {}); }

  /// Completes the handles of such operations. Called without the lock.
  static void complete(const Operations& finished) {
    for (const std::unique_ptr<MessageOperation>& operation : finished) {
      operation->complete();
    }
  }

  [[nodiscard]] bool has_finished() const { return !finished_.empty(); }

  /// Checks the time limits and peers of all operations, and reports stalls. Returns whether an
  /// operation has become overdue in this call, or the last credit has arrived.
  [[nodiscard]] bool check();

  /// Returns the latest time of the next check().
  [[nodiscard]] Deadline next_check();

  /// Returns an overdue operation for which `thread` waits; null if there is none, or after an
  /// error.
  [[nodiscard]] const MessageOperation* find_overdue(std::uint64_t thread) const;

  /// Fails the operation with a timeout unless it has ended. `late` as in
  /// MessageOperation::expire().
  void expire(const transport::WaitId& id, const std::string& late);

  /// Returns the receive that no message has matched and that `is_it` accepts; std::nullopt if
  /// there is none. For a receive from any rank, also appends the ranks to `gone` that can no
  /// longer send. Does not advance or check any operation, so a search never starts another search.
  [[nodiscard]] std::optional<transport::Stall> find_receive(const Predicate& is_it,
                                                             std::vector<int>& gone) const;

  /// Fails the receives that no message has matched with kClosed.
  void cancel_receives();

  /// Returns the ranks that have not credited all small messages of this rank, except for ranks
  /// that have left; none after a failure.
  [[nodiscard]] std::vector<int> find_debtors() const;

  /// Asks the debtors for credit. Returns false if there are none. Otherwise the owner waits until
  /// is_credit_over(), and then calls end_credit_wait().
  [[nodiscard]] bool ask_for_credit(Deadline deadline);

  [[nodiscard]] bool is_credit_over() const {
    return find_debtors().empty() || credit_until_.has_passed();
  }

  void end_credit_wait();

  /// Sends the failure of this rank's group and its reason to the ranks of other nodes.
  void abort(const Error& reason) noexcept { packet_streams_.abort(reason); }

  /// Announces to the ranks of other nodes that this rank leaves, unless it has aborted.
  void leave() noexcept { packet_streams_.leave(); }

  /// Runs the step unless the messages have failed, and keeps the step's error. Returns the step's
  /// result; false after an error.
  template <class Step>
  bool guard(Step step) {
    if (error_) [[unlikely]] {
      return false;
    }
    try {
      return step();
    } catch (const Error& error) {
      note(error.code(), error.what());
    } catch (const std::exception& error) {
      // For example out of memory: this rank cannot continue, and the other ranks must be informed.
      note(ErrorCode::kInternal, error.what());
    }
    return false;
  }

 private:
  bool progress() {
    return guard([&] { return matcher_.progress(needs_network()); });
  }

  void start(MessageOperation& operation);
  void take_ended();
  void finish(MessageOperation& operation);
  void fail(MessageOperation& operation, const Error& error);
  void end_all();
  [[nodiscard]] Error error_of(const MessageOperation& operation,
                               const Error& failure) const noexcept;
  [[nodiscard]] transport::WaitId next_id();
  void note(ErrorCode code, const char* problem) noexcept;
  void show_waits();
  [[nodiscard]] std::size_t n_credit_networks() const;

  const NativeParts& parts_;
  const GroupContext& group_;
  shm::ControlBlock& control_block_;
  tcp::PeerTable<tcp::PacketStream>& packet_streams_;
  Error out_of_memory_;  // Created in advance, while memory is available.
  MessageMatcher matcher_;
  // Operations that have not ended.
  std::vector<MessageOperation*> operations_;
  std::size_t n_async_ = 0;
  std::size_t n_networked_ = 0;
  Operations finished_;
  std::optional<Error> error_;
  Deadline credit_until_ = Deadline::never();  // Set from ask_for_credit() to end_credit_wait().
  std::uint64_t n_messages_ = 0;               // The last number of a wait.
  // Since the last show_waits(), an operation has begun to be a long wait, or a long wait has
  // ended.
  bool have_waits_changed_ = false;
};

}  // namespace unisono::engine
