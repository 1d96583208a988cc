#include "unisono/engine/native/point_to_point/message_matcher.h"

#include <unistd.h>

#include <algorithm>

#include <gtest/gtest.h>

#include "unisono/base/fd.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/stream.h"

namespace unisono::engine {
namespace {

constexpr std::int64_t kArenaBytes = 64 << 20;

transport::RankTable roster_of(int rank) {
  transport::RankTable roster{.rank = rank, .job = "test", .members = {}};
  for (int member = 0; member < 2; ++member) {
    transport::Member& entry = roster.members.emplace_back();
    entry.job_rank = member;
    entry.host = "here";
    entry.pid = ::getpid();
    entry.node = "n";
  }
  return roster;
}

// A rank of a node with two ranks. A single thread runs both ranks.
class Rank {
 public:
  Rank(int rank, std::vector<shm::EndpointMember> members)
      : roster_(roster_of(rank)),
        topology_(rank, std::vector<std::string>{"n", "n"}),
        endpoint_(std::move(members), rank, false),
        packet_streams_(
            {.members = {},
             .secret = "",
             .mine = {.job = "test", .purpose = transport::kMessagePurpose, .rank = rank},
             .caller = tcp::DialingRank::kEither,
             .make_stream = tcp::prepare_streams(),
             .has_other_nodes = false},
            nullptr),
        matcher_({.ranks = roster_,
                  .topology = topology_,
                  .job_ranks = {},
                  .endpoint = endpoint_,
                  .packet_streams = packet_streams_,
                  .prefers_single_copy = false}) {}

  Message& post(bool is_send, int peer, int tag, const Buffer& buffer) {
    Message& message = posted_.emplace_back();
    message.is_send = is_send;
    message.peer = peer;
    message.tag = tag;
    message.buffer = buffer;
    matcher_.post(message);
    matcher_.clear_ended();
    return message;
  }

  bool send_at_once(int to, int tag, const Buffer& buffer) {
    return matcher_.send_at_once(to, tag, buffer, "");
  }

  Arrival receive_at_once(int from, int tag, const Buffer& buffer) {
    Message message;
    message.peer = from;
    message.tag = tag;
    message.buffer = buffer;
    const Arrival arrival = matcher_.receive_at_once(message);
    EXPECT_EQ(message.has_ended, arrival == Arrival::kReceived);
    return arrival;
  }

  [[nodiscard]] const MessageMatcher& messages() const { return matcher_; }

  bool progress() {
    const bool has_moved = matcher_.progress(false);
    matcher_.clear_ended();
    return has_moved;
  }

  void abandon() { matcher_.abandon(); }

  [[nodiscard]] const shm::Arena& arena() const { return endpoint_.arena(topology_.local_rank()); }

  // The receiving end of the ring from this rank to the other rank.
  std::unique_ptr<transport::PacketChannel> channel_to(int rank) { return endpoint_.channel(rank); }

 private:
  transport::RankTable roster_;
  collective::Topology topology_;
  shm::Endpoint endpoint_;
  tcp::PeerTable<tcp::PacketStream> packet_streams_;
  MessageMatcher matcher_;
  std::deque<Message> posted_;
};

// Two ranks of a node. With a wrong pid neither rank can read the other's private memory.
struct Pair {
  explicit Pair(pid_t pid = ::getpid()) {
    for (int rank = 0; rank < 2; ++rank) {
      arenas.push_back(std::make_shared<const shm::Arena>(shm::Arena::create(kArenaBytes)));
    }
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<shm::EndpointMember> members;
      for (int member = 0; member < 2; ++member) {
        const auto& theirs = arenas[static_cast<std::size_t>(member)];
        members.push_back({.arena = rank == member
                                        ? theirs
                                        : std::make_shared<const shm::Arena>(shm::Arena::map(
                                              Fd(::dup(theirs->fd())), kArenaBytes)),
                           .offset_bytes = 4096,
                           .pid = pid,
                           .name = "rank " + std::to_string(member),
                           .bell = ""});
      }
      ranks.push_back(std::make_unique<Rank>(rank, std::move(members)));
    }
  }

  // Advances both ranks until no data moves.
  void run() {
    int n_polls = 0;
    bool has_moved = true;
    while (has_moved) {
      has_moved = ranks[0]->progress();
      has_moved = ranks[1]->progress() || has_moved;
      ASSERT_LT(++n_polls, 100'000);
    }
  }

  std::vector<std::shared_ptr<const shm::Arena>> arenas;
  std::vector<std::unique_ptr<Rank>> ranks;
};

std::vector<std::byte> bytes_of(std::size_t n_bytes, int seed) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::size_t i = 0; i < n_bytes; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + i / 256 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

Buffer buffer_of(std::vector<std::byte>& bytes) {
  return {.data = bytes.data(),
          .count = static_cast<std::int64_t>(bytes.size()),
          .dtype = DType::kUInt8};
}

// The transfers of large messages: each kind of memory, with and without reads of the other
// process's memory.
TEST(MessageMatcher, OfAnyMemoryArriveByEachWay) {
  constexpr std::size_t kBytes = 3'333'333;
  for (const pid_t pid : {::getpid(), pid_t{0x7FFFFFFF}}) {
    for (int way = 0; way < 4; ++way) {
      Pair pair(pid);
      std::vector<std::byte> sent = bytes_of(kBytes, way);
      std::vector<std::byte> received(kBytes);
      Buffer in = buffer_of(sent);
      Buffer out = buffer_of(received);
      if ((way & 1) != 0) {
        in.data = pair.ranks[0]->arena().data() + (32 << 20);
        std::copy(sent.begin(), sent.end(), static_cast<std::byte*>(in.data));
      }
      if ((way & 2) != 0) {
        out.data = pair.ranks[1]->arena().data() + (40 << 20);
      }
      const Message& send = pair.ranks[0]->post(true, 1, 0, in);
      EXPECT_FALSE(send.has_ended);
      const Message& receive = pair.ranks[1]->post(false, 0, 0, out);
      pair.run();
      EXPECT_TRUE(send.has_ended);
      EXPECT_TRUE(receive.has_ended);
      EXPECT_EQ(receive.source, 0);
      const auto* const data = static_cast<const std::byte*>(out.data);
      EXPECT_TRUE(std::equal(data, data + kBytes, sent.begin())) << way;
    }
  }
}

void expect_that_progress_names(Rank& rank, const std::string& peer) {
  try {
    while (rank.progress()) {
    }
    ADD_FAILURE() << "nothing was noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_NE(std::string(error.what()).find(peer), std::string::npos) << error.what();
  }
}

// The caller has reused the memory of the ended message.
TEST(MessageMatcher, OfASenderThatHasGivenUpAreNotTakenAsReceived) {
  for (const bool is_in_arena : {false, true}) {
    Pair pair;
    std::vector<std::byte> sent = bytes_of(3'333'333, 1);
    std::vector<std::byte> received(sent.size());
    Buffer in = buffer_of(sent);
    if (is_in_arena) {
      in.data = pair.ranks[0]->arena().data() + (32 << 20);
    }
    (void)pair.ranks[0]->post(true, 1, 0, in);
    pair.ranks[0]->abandon();
    std::fill_n(static_cast<std::byte*>(in.data), sent.size(), std::byte{0});
    const Message& receive = pair.ranks[1]->post(false, 0, 0, buffer_of(received));
    expect_that_progress_names(*pair.ranks[1], "rank 0 (pid");
    EXPECT_FALSE(receive.has_ended);
  }
}

TEST(MessageMatcher, ToAReceiverThatHasGivenUpAreNotWritten) {
  Pair pair(0x7FFFFFFF);
  std::vector<std::byte> sent = bytes_of(3'333'333, 1);
  const auto n_bytes = static_cast<std::int64_t>(sent.size());
  std::byte* const place = pair.ranks[1]->arena().data() + (40 << 20);
  const Message& send = pair.ranks[0]->post(true, 1, 0, buffer_of(sent));
  (void)pair.ranks[1]->post(false, 0, 0, {.data = place, .count = n_bytes, .dtype = DType::kUInt8});
  (void)pair.ranks[1]->progress();
  pair.ranks[1]->abandon();
  expect_that_progress_names(*pair.ranks[0], "rank 1 (pid");
  EXPECT_FALSE(send.has_ended);
  EXPECT_TRUE(std::all_of(place, place + n_bytes, [](std::byte b) { return b == std::byte{0}; }));
}

// A sender that computes would delay each segment.
TEST(MessageMatcher, OfASenderThatDoesNotWaitAreReadWithoutItsHelp) {
  Pair pair;
  std::vector<std::byte> sent = bytes_of(3'333'333, 1);
  std::vector<std::byte> received(sent.size());
  const Message& send = pair.ranks[0]->post(true, 1, 0, buffer_of(sent));
  const Message& receive = pair.ranks[1]->post(false, 0, 0, buffer_of(received));
  while (pair.ranks[1]->progress()) {
  }
  EXPECT_TRUE(receive.has_ended);
  EXPECT_EQ(received, sent);
  EXPECT_FALSE(send.has_ended);
}

// Two ranks alternately send small messages, as in a latency test.
TEST(MessageMatcher, OfWhichNoneIsUnderWayAreReceivedAtOnce) {
  Pair pair;
  Rank& sender = *pair.ranks[0];
  Rank& receiver = *pair.ranks[1];
  std::vector<std::byte> sent = bytes_of(100, 1);
  std::vector<std::byte> received(100);
  EXPECT_EQ(receiver.receive_at_once(0, 3, buffer_of(received)), Arrival::kNotYet);
  EXPECT_TRUE(sender.send_at_once(1, 3, buffer_of(sent)));
  EXPECT_EQ(receiver.receive_at_once(0, 3, buffer_of(received)), Arrival::kReceived);
  EXPECT_EQ(received, sent);
  std::vector<std::byte> large = bytes_of(100'000, 2);
  EXPECT_FALSE(sender.send_at_once(1, 3, buffer_of(large)));
  EXPECT_EQ(receiver.receive_at_once(0, 3, buffer_of(large)), Arrival::kNotYet);
}

// n_sent() counts a message from the call of the send, n_arrived() from the first packet that the
// receiver reads.
TEST(MessageMatcher, AreCountedOnBothSides) {
  Pair pair;
  Rank& sender = *pair.ranks[0];
  Rank& receiver = *pair.ranks[1];
  std::vector<std::byte> small = bytes_of(100, 1);
  std::vector<std::byte> large = bytes_of(3'333'333, 2);
  EXPECT_TRUE(sender.send_at_once(1, 3, buffer_of(small)));
  EXPECT_EQ(sender.messages().n_sent(1), 1U);
  EXPECT_EQ(receiver.messages().n_arrived(0), 0U);
  EXPECT_EQ(receiver.receive_at_once(0, 3, buffer_of(small)), Arrival::kReceived);
  EXPECT_EQ(receiver.messages().n_arrived(0), 1U);
  sender.post(true, 1, 4, buffer_of(small));
  sender.post(true, 1, 5, buffer_of(large));
  EXPECT_EQ(sender.messages().n_sent(1), 3U);
  EXPECT_EQ(receiver.messages().n_arrived(0), 1U);
  // An unexpected message with data, and an announced message.
  pair.run();
  EXPECT_EQ(receiver.messages().n_arrived(0), 3U);
  receiver.post(false, 0, 5, buffer_of(large));
  pair.run();
  EXPECT_EQ(receiver.messages().n_arrived(0), 3U);
  EXPECT_EQ(receiver.messages().n_sent(0), 0U);
}

TEST(MessageMatcher, ThatOthersAreBeforeAreNotReceivedAtOnce) {
  Pair pair;
  Rank& sender = *pair.ranks[0];
  Rank& receiver = *pair.ranks[1];
  std::vector<std::byte> first = bytes_of(8, 1);
  std::vector<std::byte> second = bytes_of(8, 2);
  std::vector<std::byte> third = bytes_of(8, 3);
  std::vector<std::byte> received(8);
  const Buffer buffer = buffer_of(received);
  EXPECT_TRUE(sender.send_at_once(1, 0, buffer_of(first)));
  EXPECT_TRUE(sender.send_at_once(1, 1, buffer_of(second)));
  EXPECT_TRUE(sender.send_at_once(1, 0, buffer_of(third)));
  EXPECT_EQ(receiver.receive_at_once(0, 1, buffer), Arrival::kInvolved) << "another tag is next";
  std::vector<std::byte> fewer(4);
  EXPECT_EQ(receiver.receive_at_once(0, 0, buffer_of(fewer)), Arrival::kInvolved) << "a misfit";
  EXPECT_EQ(receiver.receive_at_once(kAnyRank, 0, buffer), Arrival::kInvolved);
  receiver.post(false, 0, 1, buffer);
  pair.run();
  EXPECT_EQ(received, second);
  EXPECT_EQ(receiver.receive_at_once(0, 0, buffer), Arrival::kInvolved) << "they are unexpected";
  for (const std::vector<std::byte>& expected : {first, third}) {
    receiver.post(false, 0, 0, buffer);
    EXPECT_EQ(received, expected);
  }
  std::vector<std::byte> of_another(8);
  receiver.post(false, kAnyRank, 5, buffer_of(of_another));
  EXPECT_TRUE(sender.send_at_once(1, 5, buffer_of(first)));
  EXPECT_EQ(receiver.receive_at_once(0, 5, buffer), Arrival::kInvolved) << "a receive is before it";
  pair.run();
  EXPECT_EQ(of_another, first);
}

// Large messages move in segments that alternate with each other and with small messages.
TEST(MessageMatcher, OfManySizesInBothDirectionsDoNotHoldEachOtherUp) {
  Pair pair(0x7FFFFFFF);
  std::deque<std::vector<std::byte>> sent;
  std::deque<std::vector<std::byte>> received;
  std::vector<const Message*> messages;
  for (int i = 0; i < 60; ++i) {
    const std::size_t n_bytes = i % 3 == 0 ? 700'000 : i % 3 == 1 ? 100 : 8000;
    sent.push_back(bytes_of(n_bytes, i));
    received.emplace_back(n_bytes);
    const int from = i % 2;
    messages.push_back(&pair.ranks[static_cast<std::size_t>(from)]->post(
        true, 1 - from, i, buffer_of(sent.back())));
  }
  for (int i = 59; i >= 0; --i) {
    const int to = 1 - i % 2;
    messages.push_back(&pair.ranks[static_cast<std::size_t>(to)]->post(
        false, i % 4 < 2 ? kAnyRank : 1 - to, i, buffer_of(received[static_cast<std::size_t>(i)])));
  }
  pair.run();
  for (const Message* const message : messages) {
    EXPECT_TRUE(message->has_ended) << describe(*message);
  }
  EXPECT_EQ(received, sent);
}

// The receiver keeps unexpected messages up to a limit; the sender keeps the rest.
TEST(MessageMatcher, ThatNobodyReceivesAreKeptUpToALimit) {
  Pair pair;
  constexpr std::size_t kBytes = 4000;
  std::vector<std::byte> bytes = bytes_of(kBytes, 1);
  std::vector<const Message*> sends;
  for (int i = 0; i < 1000; ++i) {
    sends.push_back(&pair.ranks[0]->post(true, 1, 1, buffer_of(bytes)));
    pair.run();
  }
  const auto n_ended = [&] {
    return std::count_if(
        sends.begin(), sends.end(), [](const Message* send) { return send->has_ended; });
  };
  EXPECT_EQ(n_ended(),
            kMostUnexpectedBytes / (static_cast<std::int64_t>(kBytes) + kUnexpectedOverheadBytes));
  std::vector<std::byte> received(kBytes);
  for (int i = 0; i < 1000; ++i) {
    const Message& receive = pair.ranks[1]->post(false, 0, 1, buffer_of(received));
    pair.run();
    ASSERT_TRUE(receive.has_ended);
  }
  EXPECT_EQ(n_ended(), 1000);
  EXPECT_EQ(received, bytes);
  // The receives have made room for further small messages.
  EXPECT_TRUE(pair.ranks[0]->post(true, 1, 1, buffer_of(bytes)).has_ended);
}

// An invalid packet is an error with the name of the peer.
TEST(MessageMatcher, OfAPeerThatErrsAreErrors) {
  using transport::Packet;
  using transport::PacketKind;
  using transport::PacketMemory;
  const auto expect_refused = [](const Packet& packet, const std::string& text) {
    Pair pair;
    std::vector<std::byte> memory(4);
    (void)pair.ranks[1]->post(false, 0, 1, {.data = memory.data(), .count = 1});
    const std::vector<std::byte> payload(packet.n_bytes);
    ASSERT_TRUE(pair.ranks[0]->channel_to(1)->send(packet, "", payload));
    try {
      (void)pair.ranks[1]->progress();
      ADD_FAILURE() << "taken: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      EXPECT_NE(std::string(error.what()).find("rank 0 (pid"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  expect_refused({.kind = PacketKind::kTaken, .number = 3}, "expects no answer");
  expect_refused({.kind = PacketKind::kClear, .number = 3}, "expects no answer");
  expect_refused({.kind = PacketKind::kDelivered, .number = 3}, "expects no answer");
  expect_refused({.kind = PacketKind::kData, .n_bytes = 10}, "was not requested");
  expect_refused({.kind = PacketKind::kCredit, .count = 1}, "more than was sent");
  for (const std::int64_t place : {std::int64_t{-1}, kArenaBytes - 3, INT64_MAX}) {
    expect_refused({.kind = PacketKind::kAnnounce,
                    .dtype = DType::kFloat32,
                    .memory = PacketMemory::kArena,
                    .tag = 1,
                    .count = 1,
                    .place = place},
                   "outside its shared memory");
  }
}

TEST(MessageMatcher, ThatArePartlyReadByTheirReceiverDoNotGoInSegmentsToo) {
  Pair pair;
  std::vector<std::byte> bytes(100'000);
  const Message& send = pair.ranks[1]->post(true, 0, 1, buffer_of(bytes));
  const transport::Packet clear{
      .kind = transport::PacketKind::kClear, .number = send.number, .count = 1};
  ASSERT_TRUE(pair.ranks[0]->channel_to(1)->send(clear, "", {}));
  EXPECT_THROW((void)pair.ranks[1]->progress(), Error);
  EXPECT_FALSE(send.has_ended);
}

TEST(MessageMatcher, WithOneTagFindTheReceivesInTheOrderOfTheirPosts) {
  Pair pair;
  std::deque<std::vector<std::byte>> received;
  std::vector<const Message*> receives;
  for (int i = 0; i < 6; ++i) {
    received.emplace_back(100);
    receives.push_back(
        &pair.ranks[1]->post(false, i % 2 == 0 ? kAnyRank : 0, 5, buffer_of(received.back())));
  }
  for (int i = 0; i < 6; ++i) {
    std::vector<std::byte> sent = bytes_of(100, i);
    EXPECT_TRUE(pair.ranks[0]->post(true, 1, 5, buffer_of(sent)).has_ended);
  }
  pair.run();
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(receives[static_cast<std::size_t>(i)]->has_ended);
    EXPECT_EQ(received[static_cast<std::size_t>(i)], bytes_of(100, i));
  }
}

}  // namespace
}  // namespace unisono::engine
