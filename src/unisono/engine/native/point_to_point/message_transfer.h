#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/remote/frame_stream.h"
#include "unisono/transport/remote/peer_table.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/endpoint.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::engine {

/// State of a send or receive of this rank, from call to end.
struct Message {
  bool is_send = false;
  int peer = kAnyRank;  ///< The other rank.
  int tag = 0;
  Buffer buffer = {};
  std::string label = {};    ///< The caller's name of the buffer, for logs and errors.
  bool is_attended = false;  ///< A thread blocks until the message has ended.

  /// Set by MessageMatcher and MessageTransfer: the sending rank, and whether this rank's part has
  /// ended.
  int source = kAnyRank;
  bool has_ended = false;

  /// Bytes that have moved, if the data moves in segments.
  std::int64_t n_moved_bytes = 0;
  /// Parts of the transfer that have not ended: 2 if each rank copies a half.
  int n_parts = 1;
  bool is_cleared = false;  ///< The receiver has answered the announcement.
  /// Number of an announced message among the announcements from the sender to the receiver.
  std::uint32_t number = 0;

  /// The message's memory.
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())};
  }
};

/// "send (f32[4], to rank 1, tag 3) of weights", or "to rank 1 (rank 3 of the job)".
[[nodiscard]] std::string describe(const Message& message, transport::JobRanks job_ranks = {});

/// Limit of the unexpected small messages that a rank keeps for each other rank, in bytes. Messages
/// beyond the limit are announced, and their data stays with the sender.
inline constexpr std::int64_t kMostUnexpectedBytes = 1 << 20;

/// Smallest credit that is returned at once, in bytes, until the sender asks for all credit.
inline constexpr std::int64_t kCreditPortionBytes = kMostUnexpectedBytes / 4;

/// Bytes that an unexpected message counts in addition to its data.
inline constexpr std::int64_t kUnexpectedOverheadBytes = 64;

/// A message that arrived before the matching receive, with data or as an announcement.
struct UnexpectedMessage {
  transport::Packet packet;
  std::string label;
  std::vector<std::byte> data;
};

/// A packet in the queue to a peer.
struct OutgoingPacket {
  transport::Packet packet;
  std::span<const std::byte> payload = {};
  Message* message = nullptr;  ///< The message of the packet; supplies the label.
  bool ends_message = false;
};

/// State of the traffic between this rank and another rank, or itself.
struct MessagePeer {
  int rank = 0;
  /// Null while there is no connection.
  transport::PacketChannel* channel = nullptr;

  /// Set for a rank of this node.
  const shm::Arena* arena = nullptr;
  std::unique_ptr<shm::ProcessMemory> process = {};

  [[nodiscard]] bool is_on_node() const { return arena != nullptr; }

  std::deque<OutgoingPacket> outgoing = {};
  /// Bytes of this rank's small messages for which the peer has not returned credit.
  std::int64_t n_uncredited_bytes = 0;
  /// Number of this rank's announcements to the peer; the next announcement's number.
  std::uint32_t n_announced = 0;
  /// Number of messages that this rank has sent to the peer, including those in flight, and number
  /// of messages that have arrived from the peer.
  std::uint64_t n_sent = 0;
  std::uint64_t n_arrived = 0;
  /// This rank's announced sends that wait for the peer, and its receives that wait for the peer's
  /// data, by number.
  std::map<std::uint32_t, Message*> announced = {};
  std::map<std::uint32_t, Message*> receiving = {};

  std::deque<UnexpectedMessage> unexpected = {};
  /// Bytes of the peer's unexpected small messages in this rank's memory, with overhead.
  std::int64_t n_unexpected_bytes = 0;
  /// Credit of received messages that this rank has not returned yet.
  std::int64_t n_credit_to_return_bytes = 0;
  /// Smaller credit is held back.
  std::int64_t least_credit_bytes = kCreditPortionBytes;
  /// The peer leaves the group and takes no further message.
  bool receives_no_more = false;

  /// State of the packet that is being read. Its payload goes to the receive `taker`, or to
  /// `arriving`.
  bool is_taking = false;
  Message* taker = nullptr;
  UnexpectedMessage arriving = {};
  std::span<std::byte> target = {};
};

/// References of a group's MessageTransfer and MessageMatcher, which they must outlive.
struct MessageParts {
  const transport::RankTable& ranks;
  const collective::Topology& topology;
  transport::JobRanks job_ranks;  ///< For messages.
  shm::Endpoint& endpoint;
  tcp::PeerTable<tcp::PacketStream>& packet_streams;
  /// Read a peer's private memory in a single copy even if two copies take less time.
  bool prefers_single_copy;
};

/// Moves the data of a group's messages between this rank and its peers: sends, the data of matched
/// receives, and the credit for small messages. MessageMatcher decides which receive gets a
/// message.
///
/// A small message carries its data. A large message is announced, and the data moves after the
/// receive is posted: in place, if the ranks share the memory or a rank may read the other's memory
/// and that is faster, otherwise in segments.
///
/// Owned by MessageMatcher, for the lifetime of the group. Not thread-safe: the mutex of
/// PointToPointProgress serializes all calls. Never blocks.
///
/// Throws Error: kCorruptData for an invalid packet, kPeerLost, and the errors of the channels.
/// After an error no message can continue; the caller then calls abandon().
class MessageTransfer {
 public:
  explicit MessageTransfer(const MessageParts& parts);

  [[nodiscard]] MessagePeer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] const MessagePeer& peer(int rank) const {
    return peers_[static_cast<std::size_t>(rank)];
  }

  /// Peers of this node, including this rank.
  [[nodiscard]] const std::vector<MessagePeer*>& on_node() const { return on_node_; }

  /// Peers of other nodes with a connection.
  [[nodiscard]] const std::vector<MessagePeer*>& connected() const { return connected_; }

  /// Adds new connections to connected(). Returns whether there are new connections.
  bool add_connections();

  /// Starts opening the connection to the peer if there is none.
  void connect(const MessagePeer& peer) {
    if (peer.channel == nullptr) {
      parts_.packet_streams.open(peer.rank);
    }
  }

  /// Sends a small message to a rank of this node if no other packet is queued. Returns false
  /// without sending otherwise.
  [[nodiscard]] bool send_at_once(int to, int tag, const Buffer& buffer, std::string_view label);

  /// Begins a send, and advances the message as far as possible without waiting.
  void post_send(Message& message);

  /// Begins to move the data of the announced message `packet` into its receive `message`.
  void receive_announced(MessagePeer& peer, Message& message, const transport::Packet& packet);

  /// Returns the receive of an announced message to which the data of a kData packet belongs.
  [[nodiscard]] Message& find_receiver(MessagePeer& peer, const transport::Packet& packet) const;

  /// Records that the data of a kData packet is in place. The last segment ends the message.
  void finish_segment(MessagePeer& peer, Message& receiver, const transport::Packet& packet);

  /// Processes another packet about a message that was matched before, or about credit.
  void process(MessagePeer& peer, const transport::Packet& packet);

  /// Sends queued packets to the peer. Returns whether the channel has accepted a packet.
  bool flush(MessagePeer& peer);

  /// Advances all copies by a step. Returns whether there are any.
  bool move_copies();

  /// Ends a part of the transfer; the last part ends the message.
  void end_part(Message& message) {
    if (--message.n_parts == 0) {
      message.has_ended = true;
      ended_.push_back(&message);
    }
  }

  /// The messages that have ended since the caller cleared the list.
  [[nodiscard]] std::vector<Message*>& ended() { return ended_; }

  [[nodiscard]] const std::vector<Message*>& ended() const { return ended_; }

  /// Records that a small message of the peer has reached its receive. Returns credit in portions,
  /// not for each message.
  void return_credit(MessagePeer& peer, std::int64_t n_bytes) {
    peer.n_credit_to_return_bytes += n_bytes + kUnexpectedOverheadBytes;
    if (peer.n_credit_to_return_bytes >= peer.least_credit_bytes) {
      send_credit(peer);
    }
  }

  /// Implements MessageMatcher::ask_for_credit().
  void ask_for_credit();

  /// Implements MessageMatcher::owes_credit(). A rank does not wait for credit of messages to
  /// itself.
  [[nodiscard]] bool owes_credit(int rank) const {
    return rank != parts_.topology.rank() && peer(rank).n_uncredited_bytes > 0 &&
           !peer(rank).receives_no_more;
  }

  /// Drops all messages, and withdraws their memory from the peers of this node.
  void abandon();

  /// Returns the error for an invalid packet of the peer.
  [[nodiscard]] Error corrupt(const MessagePeer& peer, std::string_view problem) const;

 private:
  // A copy between this rank's memory and the memory of a rank of its node.
  struct Copy {
    MessagePeer* peer;
    Message* message;
    // Either `to` or `from` is the message's own memory. With `is_of_process`, `from` is an address
    // in the peer's process.
    std::byte* to;
    const std::byte* from;
    bool is_of_process;
    std::int64_t n_bytes;
    transport::PacketKind end;  // The packet that reports the end to the peer.
  };

  [[nodiscard]] bool send_small(MessagePeer& peer,
                                int tag,
                                const Buffer& buffer,
                                std::string_view label);
  void queue_segment(MessagePeer& peer, Message& message);
  void answer_clear(MessagePeer& peer, const transport::Packet& packet);
  [[nodiscard]] bool reads_announced(const MessagePeer& peer,
                                     const Message& message,
                                     const transport::Packet& packet) const;
  void copy_step(const Copy& copy, std::size_t n_bytes) const;
  void check_memory_of(const MessagePeer& peer) const;
  void send_credit(MessagePeer& peer);
  void answer_ask_credit(MessagePeer& peer);
  [[nodiscard]] Message& find_waiting(MessagePeer& peer,
                                      const std::map<std::uint32_t, Message*>& waiting,
                                      std::uint32_t number) const;
  void end_waiting(MessagePeer& peer,
                   std::map<std::uint32_t, Message*>& waiting,
                   std::uint32_t number);

  MessageParts parts_;
  const shm::Arena& arena_;  // The arena of this rank.
  std::vector<std::unique_ptr<transport::PacketChannel>> rings_;
  std::vector<MessagePeer> peers_;
  std::vector<MessagePeer*> on_node_;
  std::vector<MessagePeer*> connected_;
  std::deque<Copy> copies_;
  std::vector<Message*> ended_;
  bool is_leaving_ = false;  // This rank has called ask_for_credit().
};

}  // namespace unisono::engine
