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
#include "unisono/engine/message_call.h"
#include "unisono/health/rank_status.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/endpoint.h"
#include "unisono/transport/shm/process_memory.h"
#include "unisono/transport/tcp/packet_stream.h"
#include "unisono/transport/tcp/peer_table.h"

namespace unisono::engine {

/// One send or receive of this rank, from its call to its end.
struct Message {
  bool is_send = false;
  int peer = kAnyRank;  ///< The other rank.
  int tag = 0;
  Buffer buffer = {};
  std::string label = {};    ///< What the caller calls its buffer, for messages.
  bool is_attended = false;  ///< A thread does nothing else until it has ended.

  /// Set by the matcher: the rank that it came from, and that this rank's part is over.
  int source = kAnyRank;
  bool has_ended = false;

  /// How much of the data has moved, where it moves in segments.
  std::int64_t n_moved_bytes = 0;
  /// Parts of its way that have not ended: more than one where both ranks copy.
  int n_parts = 1;
  bool is_cleared = false;  ///< Its receiver has answered the announcement.
  /// Of an announced message: its number among those that its sender has announced to the receiver.
  std::uint32_t number = 0;

  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())};
  }
};

/// "send (f32[4], to rank 1, tag 3) of weights", or "to rank 1 (rank 3 of the job)".
[[nodiscard]] std::string describe(const Message& message, transport::JobRanks job_ranks = {});

/// How many bytes of unexpected small messages of one other rank a rank keeps at most. Messages
/// beyond it are announced, and stay with their sender.
inline constexpr std::int64_t kMostUnexpectedBytes = 1 << 20;

/// Least number of bytes that is credited at once, until the sender asks for all credit.
inline constexpr std::int64_t kCreditPortionBytes = kMostUnexpectedBytes / 4;

/// What of that a message takes besides its data.
inline constexpr std::int64_t kUnexpectedOverheadBytes = 64;

/// A message that came before its receive: with its data, or announced.
struct UnexpectedMessage {
  transport::Packet packet;
  std::string label;
  std::vector<std::byte> data;
};

/// A packet in the queue to a peer.
struct OutgoingPacket {
  transport::Packet packet;
  std::span<const std::byte> payload = {};
  Message* message = nullptr;  ///< Whose label goes with it, and what it is a part of.
  bool ends_message = false;
};

/// All that is under way between this rank and one other, or itself.
struct MessagePeer {
  int rank = 0;
  /// Null while there is no connection.
  transport::PacketChannel* channel = nullptr;

  /// For a rank of this node.
  const shm::Arena* arena = nullptr;
  std::unique_ptr<shm::ProcessMemory> process = {};

  std::deque<OutgoingPacket> outgoing = {};
  std::int64_t n_uncredited_bytes = 0;
  std::uint32_t n_announced = 0;
  /// How many messages this rank has called to it, and how many have come from it, ever.
  std::uint64_t n_sent = 0;
  std::uint64_t n_arrived = 0;
  /// Own sends that wait for the peer, and own receives that wait for its data, by number.
  std::map<std::uint32_t, Message*> announced = {};
  std::map<std::uint32_t, Message*> receiving = {};

  std::deque<UnexpectedMessage> unexpected = {};
  std::int64_t n_unexpected_bytes = 0;
  std::int64_t n_credit_to_return_bytes = 0;
  /// Credit below this is kept back.
  std::int64_t least_credit_bytes = kCreditPortionBytes;
  /// The peer leaves the group and takes no further message.
  bool receives_no_more = false;

  /// Where the payload of the packet that is being taken goes: to a receive, or to `arriving`.
  bool is_taking = false;
  Message* taker = nullptr;
  UnexpectedMessage arriving = {};
  std::span<std::byte> target = {};
};

/// What a MessageMatcher is made of. The references outlive it.
struct MessageParts {
  const collective::Topology& topology;
  shm::Endpoint& endpoint;
  tcp::PeerTable<tcp::PacketStream>& packet_streams;
  const health::RankStatus& ranks;
  /// Whether a peer's private memory is read in one copy even where two take less time.
  bool prefers_single_copy;
};

/// What MessageMatcher::receive_at_once() found.
enum class Arrival : std::uint8_t { kReceived, kNotYet, kInvolved };

/// Matches the messages between this rank and the others, and moves them. Never blocks. One thread
/// at a time. Its errors end all of it: abandon() then.
///
/// A message goes to the first receive, in the order of their posts, that takes its source and has
/// its tag. Small ones go with their data, large ones are announced, and move when their receive is
/// there: read or written where they lie if the ranks share memory or one may read the other's and
/// that is faster, else in segments.
class MessageMatcher {
 public:
  explicit MessageMatcher(MessageParts parts);

  /// Begins a send or receive, and takes it as far as it comes at once. The message and its memory
  /// stay until it has ended.
  ///
  /// Throws Error: kMismatch, and what progress() throws.
  void post(Message& message);

  /// Sends a small message to a rank of this node that has nothing in its way. False, and nothing
  /// was sent, else: it is to be posted then.
  [[nodiscard]] bool send_at_once(int to, int tag, const Buffer& buffer, std::string_view label);

  /// Receives a small message of a rank of this node if it comes next. kInvolved where something is
  /// before it: the receive is to be posted then. Throws as progress() does.
  [[nodiscard]] Arrival receive_at_once(Message& message);

  /// Moves what can be moved on this node, and between nodes too with `with_network`. Returns
  /// whether anything was.
  ///
  /// Throws Error: kMismatch when a message does not fit its receive, kPeerLost, kCorruptData, and
  /// a peer's own error when its group failed.
  bool progress(bool with_network);

  /// Moves what can be moved between nodes only, with the same errors. Where this rank waits for
  /// nothing there, no message ends.
  bool progress_between_nodes();

  /// The messages that have ended since clear_ended().
  [[nodiscard]] const std::vector<Message*>& ended() const { return ended_; }

  void clear_ended() { ended_.clear(); }

  /// Whether a rank of another node has said that it leaves.
  [[nodiscard]] bool has_left(int rank) const;

  /// Whether there is something of a rank of this node that progress() is yet to take.
  [[nodiscard]] bool has_unread(int rank) const;

  /// Whether nobody listens for a rank of another node any more, with which there is no connection.
  [[nodiscard]] bool is_unreachable(int rank) const;

  /// The tags, each once, of the messages that have come from `rank`, or kAnyRank, and that no
  /// receive takes.
  [[nodiscard]] std::vector<int> find_unexpected_tags(int rank) const;

  /// How many messages this rank has called to `rank`, and how many have come from it, ever.
  [[nodiscard]] std::uint64_t n_sent(int rank) const { return peer_of(rank).n_sent; }

  [[nodiscard]] std::uint64_t n_arrived(int rank) const { return peer_of(rank).n_arrived; }

  /// Forgets the receives for which no message has begun, and returns them.
  [[nodiscard]] std::vector<Message*> give_up_receives();

  /// Asks the peers that have not returned all credit to return it. For a rank that leaves and has
  /// no message under way. Unexpected messages of peers that leave too are dropped and credited.
  void ask_for_credit();

  /// Whether small messages to `rank` have not been credited: that rank may still find that one
  /// does not fit its receive.
  [[nodiscard]] bool owes_credit(int rank) const;

  /// Forgets all that is under way. Peers of this node that read or write a message's memory, or
  /// are to, then fail.
  void abandon();

 private:
  // A copy between this rank's memory and that of a rank of its node.
  struct Copy {
    MessagePeer* peer;
    Message* message;
    // One of the two is the message's own memory; with `is_of_process`, `from` is an address of
    // the peer's process.
    std::byte* to;
    const std::byte* from;
    bool is_of_process;
    std::int64_t n_bytes;
    transport::PacketKind end;  // What the peer is told then.
  };

  // message_sending.cpp
  [[nodiscard]] bool send_small(MessagePeer& peer,
                                int tag,
                                const Buffer& buffer,
                                std::string_view label);
  void post_send(Message& message);
  bool flush(MessagePeer& peer);
  void queue_segment(MessagePeer& peer, Message& message);
  void answer_clear(MessagePeer& peer, const transport::Packet& packet);
  bool move_copies();
  void copy_step(const Copy& copy, std::size_t n_bytes) const;
  void check_memory_of(const MessagePeer& peer) const;
  void return_credit(MessagePeer& peer, std::int64_t n_bytes);
  void send_credit(MessagePeer& peer);
  void answer_ask_credit(MessagePeer& peer);

  // message_receiving.cpp
  void post_receive(Message& message);
  bool take_unexpected(MessagePeer& peer, Message& message);
  bool read(MessagePeer& peer);
  void choose_target(MessagePeer& peer, const transport::Packet& packet);
  void finish_arrival(MessagePeer& peer, const transport::Packet& packet);
  [[nodiscard]] Message* match(int source, int tag);
  void keep_unexpected(MessagePeer& peer);
  [[nodiscard]] bool reads_announced(const MessagePeer& peer,
                                     const Message& message,
                                     const transport::Packet& packet) const;
  void begin_announced(MessagePeer& peer, Message& message, const transport::Packet& packet);
  void check_shape(const MessagePeer& peer,
                   const Message& message,
                   const transport::Packet& packet,
                   std::string_view label) const;
  [[nodiscard]] Message& find_waiting(MessagePeer& peer,
                                      const std::map<std::uint32_t, Message*>& waiting,
                                      std::uint32_t number) const;
  [[nodiscard]] Message& take_waiting(MessagePeer& peer,
                                      std::map<std::uint32_t, Message*>& waiting,
                                      std::uint32_t number);
  [[nodiscard]] Error corrupt(const MessagePeer& peer, std::string_view problem) const;

  [[nodiscard]] const MessagePeer& peer_of(int rank) const {
    return peers_[static_cast<std::size_t>(rank)];
  }

  void end_part(Message& message);

  MessageParts parts_;
  const shm::Arena& arena_;  // This rank's own.
  std::vector<std::unique_ptr<transport::PacketChannel>> rings_;
  std::vector<MessagePeer> peers_;     // By rank.
  std::vector<MessagePeer*> on_node_;  // This rank among them.
  std::vector<MessagePeer*> connected_;
  std::deque<Message*> posted_;  // Receives without a message.
  std::deque<Copy> copies_;
  std::vector<Message*> ended_;
  // The rank whose unexpected messages are looked at first: behind the one that was served last.
  // Each look takes a packet of every peer, so none of them waits forever.
  std::size_t first_ = 0;
  bool is_leaving_ = false;  // This rank has called ask_for_credit().
};

}  // namespace unisono::engine
