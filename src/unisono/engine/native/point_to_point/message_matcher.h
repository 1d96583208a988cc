#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/engine/native/point_to_point/message_transfer.h"
#include "unisono/transport/frame.h"

namespace unisono::engine {

/// Result of MessageMatcher::receive_at_once().
enum class Arrival : std::uint8_t { kReceived, kNotYet, kInvolved };

/// Matches the messages between this rank and all peers: a message goes to the first posted receive
/// that accepts the source and has the tag. MessageTransfer moves the data.
///
/// Owned by PendingMessages, for the lifetime of the group. Not thread-safe: the mutex of
/// PointToPointProgress serializes all calls. Never blocks. After an error no message can continue;
/// the caller then calls abandon().
class MessageMatcher {
 public:
  explicit MessageMatcher(const MessageParts& parts) : parts_(parts), transfer_(parts) {}

  /// Begins a send or receive, and advances the message as far as possible without waiting. The
  /// message and its memory must remain valid until the message has ended.
  ///
  /// Throws Error(kMismatch), and the errors of progress().
  void post(Message& message);

  /// Sends a small message to a rank of this node if no other packet is queued. Returns false
  /// without sending otherwise; the caller then posts the message.
  [[nodiscard]] bool send_at_once(int to, int tag, const Buffer& buffer, std::string_view label) {
    return transfer_.send_at_once(to, tag, buffer, label);
  }

  /// Receives a small message from a rank of this node if it is the next packet. Returns kInvolved
  /// if another message or receive comes first; the caller then posts the receive. Throws like
  /// progress().
  [[nodiscard]] Arrival receive_at_once(Message& message);

  /// Moves all data that can move on this node, and between nodes if `with_network`. Returns
  /// whether any data has moved.
  ///
  /// Throws Error: kMismatch if a message does not fit its receive, kPeerLost, kCorruptData, and a
  /// peer's own error if the peer's group failed.
  bool progress(bool with_network);

  /// Moves all data that can move between nodes only; throws like progress(). No message ends if
  /// this rank waits for no message between nodes.
  bool progress_between_nodes();

  /// Returns the messages that have ended since clear_ended().
  [[nodiscard]] const std::vector<Message*>& ended() const { return transfer_.ended(); }

  /// Clears ended(), after the caller has processed its messages.
  void clear_ended() { transfer_.ended().clear(); }

  /// Returns whether a rank of another node has announced that it leaves.
  [[nodiscard]] bool has_left(int rank) const;

  /// Returns whether a rank of this node has sent a packet that progress() has not read yet.
  [[nodiscard]] bool has_unread(int rank) const;

  /// Returns whether the listener of a rank of another node is gone, if there is no connection to
  /// the rank.
  [[nodiscard]] bool is_unreachable(int rank) const;

  /// Returns the distinct tags of the unexpected messages from `rank`, or from all ranks for
  /// kAnyRank.
  [[nodiscard]] std::vector<int> find_unexpected_tags(int rank) const;

  /// Number of messages that this rank has sent to `rank`, including those in flight, and number of
  /// messages that have arrived from `rank`.
  [[nodiscard]] std::uint64_t n_sent(int rank) const { return transfer_.peer(rank).n_sent; }

  [[nodiscard]] std::uint64_t n_arrived(int rank) const { return transfer_.peer(rank).n_arrived; }

  /// Removes the posted receives that no message has matched, and returns them.
  [[nodiscard]] std::vector<Message*> cancel_receives();

  /// Asks all peers with outstanding credit to return it. For a rank that leaves and has no message
  /// in flight. Drops and credits the unexpected messages of peers that leave too.
  void ask_for_credit() { transfer_.ask_for_credit(); }

  /// Returns whether `rank` has not credited all small messages of this rank. Such a rank may still
  /// find that a message does not fit its receive.
  [[nodiscard]] bool owes_credit(int rank) const { return transfer_.owes_credit(rank); }

  /// Drops all messages. Peers of this node that read or write the memory of such a message, now or
  /// later, then fail.
  void abandon();

 private:
  void post_receive(Message& message);
  bool take_unexpected(MessagePeer& peer, Message& message);
  bool read(MessagePeer& peer);
  void choose_target(MessagePeer& peer, const transport::Packet& packet);
  void finish_arrival(MessagePeer& peer, const transport::Packet& packet);
  [[nodiscard]] Message* match(int source, int tag);
  void keep_unexpected(MessagePeer& peer);
  void check_shape(const MessagePeer& peer,
                   const Message& message,
                   const transport::Packet& packet,
                   std::string_view label) const;

  MessageParts parts_;
  MessageTransfer transfer_;
  std::deque<Message*> posted_;  // Receives that no message has matched.
  // The rank to search first for unexpected messages: the rank after the last sender. Each pass
  // reads packets of every peer, so that no peer starves.
  int first_ = 0;
};

}  // namespace unisono::engine
