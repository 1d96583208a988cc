// Writes the seed corpus with the library's own encoders: fuzz_seeds FOLDER. The output is
// reproducible; fuzz/corpus contains the seeds.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/wait_record.h"
#include "unisono/launch/messages.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/store/file_log.h"
#include "unisono/store/protocol.h"
#include "unisono/store/store_map.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"

#include "corpus.h"
#include "operation_tag.h"
#include "packet_bytes.h"

namespace unisono::fuzz {
namespace {

Bytes numbers(std::initializer_list<unsigned> values) {
  Bytes bytes;
  for (const unsigned value : values) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

Bytes data_frame(std::uint32_t step, const Bytes& payload) {
  const tcp::OperationTag tag = operation_tag();
  const transport::FrameBytes header = transport::encode({.kind = transport::FrameKind::kData,
                                                          .step = step,
                                                          .sequence = tag.sequence,
                                                          .descriptor = tag.descriptor,
                                                          .n_bytes = payload.size()});
  return join({Bytes(header.begin(), header.end()), payload});
}

struct NamedBytes {
  const char* name;
  Bytes bytes;
};

// Returns a packet of each kind.
std::vector<NamedBytes> every_packet() {
  using transport::PacketKind;
  using transport::PacketMemory;
  const Bytes data = bytes_of("0123456789ab");
  const auto n_bytes = static_cast<std::uint32_t>(data.size());
  return {{"message",
           packet_bytes({.kind = PacketKind::kMessage,
                         .dtype = DType::kFloat32,
                         .tag = 9,
                         .n_bytes = n_bytes,
                         .count = 3},
                        "label",
                        data)},
          {"announce",
           packet_bytes({.kind = PacketKind::kAnnounce,
                         .dtype = DType::kFloat64,
                         .memory = PacketMemory::kArena,
                         .tag = -1,
                         .number = 1,
                         .count = 100'000,
                         .place = 4096},
                        "label",
                        {})},
          {"clear",
           packet_bytes({.kind = PacketKind::kClear,
                         .memory = PacketMemory::kArena,
                         .number = 1,
                         .count = 50'000,
                         .place = 8192},
                        "",
                        {})},
          {"data",
           packet_bytes({.kind = PacketKind::kData, .number = 1, .n_bytes = n_bytes}, "", data)},
          {"taken", packet_bytes({.kind = PacketKind::kTaken, .number = 1}, "", {})},
          {"delivered", packet_bytes({.kind = PacketKind::kDelivered, .number = 1}, "", {})},
          {"credit", packet_bytes({.kind = PacketKind::kCredit, .count = 70'000}, "", {})},
          {"ask_credit", packet_bytes({.kind = PacketKind::kAskCredit}, "", {})}};
}

void write_packets(const std::filesystem::path& root) {
  const Corpus corpus(root, "packet");
  Bytes all;
  for (const auto& [name, bytes] : every_packet()) {
    corpus.add(name, join({numbers({255}), bytes}));
    all = join({all, bytes});
  }
  const Bytes leave = transport::encode_leave(0);
  const Bytes abort = transport::encode_abort(0, Error(ErrorCode::kMismatch, "ranks disagree"));
  corpus.add("all", join({numbers({255}), all, leave}));
  corpus.add("in_parts", join({numbers({7}), all, leave}));
  corpus.add("cut", join({numbers({255}), Bytes(all.begin(), all.begin() + 100)}));
  corpus.add("leave", join({numbers({255}), leave}));
  corpus.add("abort_behind_packets", join({numbers({3}), all, abort}));
}

void write_frames(const std::filesystem::path& root) {
  const Bytes abort = transport::encode_abort(0, Error(ErrorCode::kMismatch, "ranks disagree"));
  const Bytes first = data_frame(0, bytes_of("0123456789ab"));
  const Bytes second = data_frame(1, bytes_of("xyz"));
  const Corpus frame(root, "frame");
  frame.add("data", data_frame(0, {}));
  frame.add("abort", abort);
  frame.add("leave", transport::encode_leave(0));
  frame.add("packet", every_packet().front().bytes);
  frame.add("rank_progress",
            transport::encode_rank_progress({.sequence = operation_tag().sequence,
                                             .descriptor = operation_tag().descriptor,
                                             .has_finished = true,
                                             .refused = "why",
                                             .waits = "for whom",
                                             .elsewhere = "also"},
                                            1));
  using Kind = transport::FrameKind;
  frame.add("ask", transport::encode({.kind = Kind::kAsk, .sequence = 1, .question = 2}, {}));
  frame.add("heard", transport::encode({.kind = Kind::kAck, .question = 2}, {}));
  const Bytes wait =
      transport::encode(transport::Stall{.id = {.group = 1, .is_message = true, .sequence = 7},
                                         .rank = 2,
                                         .late = {{.rank = 0, .n_arrived = 3}, {.rank = 1}},
                                         .is_for_any = true,
                                         .text = "recv of group 1",
                                         .gone = "rank 3"});
  frame.add("wait", transport::encode({.kind = Kind::kWait, .question = 2}, wait));
  frame.add("ask_wait",
            transport::encode({.kind = Kind::kAskWait, .sequence = 1, .question = 2}, wait));
  const Corpus connection(root, "connection");
  connection.add("one_receive", join({numbers({1, 12}), first}));
  connection.add("two_receives", join({numbers({2, 12, 3}), first, second}));
  connection.add("cut", join({numbers({1, 12}), Bytes(first.begin(), first.end() - 5)}));
  connection.add("abort_behind_data", join({numbers({2, 12, 3}), first, abort}));
  connection.add("leave", join({numbers({1, 12}), transport::encode_leave(0)}));
  connection.add("nothing_posted", join({numbers({0}), first}));
}

// Returns the first message of a client. The nonce, which follows the 12 bytes of the prefix, is
// all zeros.
Bytes greeting() {
  net::Hello hello(
      net::Hello::Side::kClient, "secret", {.job = "job", .purpose = "store", .rank = 1});
  Bytes bytes = hello.take_output();
  constexpr std::size_t kPrefixBytes = 12;
  for (std::size_t i = 0; i < net::kNonceBytes; ++i) {
    bytes.at(kPrefixBytes + i) = std::byte{0};
  }
  return bytes;
}

void write_hellos(const std::filesystem::path& root) {
  const Corpus corpus(root, "hello");
  const Bytes proof(net::kProofBytes);
  corpus.add("to_server", join({numbers({1, 255}), greeting(), proof}));
  corpus.add("to_server_by_byte", join({numbers({1, 1}), greeting(), proof}));
  corpus.add("to_client", join({numbers({0, 255}), greeting(), numbers({0}), proof}));
  corpus.add("refused_client", join({numbers({0, 255}), greeting(), numbers({1}), proof}));
  corpus.add("nobody_between", numbers({2, 255}));
  corpus.add("another_secret", numbers({6, 255}));
  corpus.add("change_of_a_name", numbers({2, 7, 53, 1}));
  corpus.add("change_of_the_proof", numbers({2, 7, 200, 1}));
}

Bytes validate() {
  ByteWriter writer = store::begin(store::Opcode::kValidate);
  writer.put(store::kValidateMagic);
  return writer.bytes();
}

Bytes ping() {
  ByteWriter writer = store::begin(store::Opcode::kPing);
  writer.put(std::uint32_t{77});
  return writer.bytes();
}

Bytes compare_set() {
  ByteWriter writer = store::begin(store::Opcode::kCompareSet, "k", "old");
  writer.put_string("new");
  return writer.bytes();
}

Bytes multi_set() {
  ByteWriter writer = store::begin(store::Opcode::kMultiSet);
  writer.put<std::uint64_t>(2);
  for (const char* key : {"a", "b"}) {
    store::put_key(writer, key);
    writer.put_string("value");
  }
  return writer.bytes();
}

Bytes with_keys(store::Opcode opcode) {
  return store::begin(opcode, std::vector<std::string>{"a", "b"}).bytes();
}

std::vector<NamedBytes> every_request() {
  using store::begin;
  using store::Opcode;
  return {{"validate", validate()},
          {"set", begin(Opcode::kSet, "k", "value").bytes()},
          {"compare_set", compare_set()},
          {"get", begin(Opcode::kGet, "k").bytes()},
          {"add", begin(Opcode::kAdd, "n", 5).bytes()},
          {"check", with_keys(Opcode::kCheck)},
          {"wait", with_keys(Opcode::kWait)},
          {"num_keys", begin(Opcode::kNumKeys).bytes()},
          {"delete_key", begin(Opcode::kDeleteKey, "k").bytes()},
          {"append", begin(Opcode::kAppend, "k", "more").bytes()},
          {"multi_get", with_keys(Opcode::kMultiGet)},
          {"multi_set", multi_set()},
          {"cancel_wait", begin(Opcode::kCancelWait).bytes()},
          {"ping", ping()},
          {"queue_push", begin(Opcode::kQueuePush, "q", "value").bytes()},
          {"queue_pop", begin(Opcode::kQueuePop, "q").bytes()},
          {"queue_len", begin(Opcode::kQueueLen, "q").bytes()},
          {"list_keys", begin(Opcode::kListKeys).bytes()},
          {"barrier", begin(Opcode::kBarrier, "b", 2).bytes()},
          {"version", begin(Opcode::kVersion).bytes()},
          {"watch", begin(Opcode::kWatch, "a").bytes()},
          {"unwatch", begin(Opcode::kUnwatch, "a").bytes()},
          {"set_at_end", begin(Opcode::kSetAtEnd, "k", "value").bytes()},
          {"explain", begin(Opcode::kExplain).bytes()}};
}

// Encodes a step of the session target: the number of the connection (with the target's bits), the
// length, and the bytes.
Bytes step(unsigned connection, const Bytes& bytes) {
  return join({numbers({connection, static_cast<unsigned>(bytes.size())}), bytes});
}

void write_store(const std::filesystem::path& root) {
  using store::begin;
  using store::Opcode;
  const Corpus requests(root, "store_requests");
  const Corpus session(root, "store_session");
  for (const NamedBytes& request : every_request()) {
    requests.add(request.name, join({numbers({255}), request.bytes}));
    session.add(request.name, join({numbers({1}), step(0, request.bytes)}));
  }
  requests.add("in_parts", join({numbers({3}), multi_set(), ping()}));
  session.add("plain_client", join({numbers({0}), step(0, join({validate(), ping()}))}));
  session.add("hello", join({numbers({0}), step(0, greeting())}));
  const Bytes wait = with_keys(Opcode::kWait);
  const Bytes get = begin(Opcode::kGet, "a").bytes();
  session.add("wait_and_set",
              join({numbers({1}), step(0, join({wait, get})), step(1, multi_set())}));
  session.add("wait_and_leave",
              join({numbers({1}), step(0, wait), step(0x80, {}), step(1, multi_set())}));
  session.add("wait_and_cancel",
              join({numbers({1}), step(0, wait), step(0x40, begin(Opcode::kCancelWait).bytes())}));
  const Bytes watch = begin(Opcode::kWatch, "a").bytes();
  session.add("watch_and_set", join({numbers({1}), step(0, watch), step(1, multi_set())}));
  session.add("watch_and_leave",
              join({numbers({1}), step(0, watch), step(0x80, {}), step(1, multi_set())}));
  Bytes counters;
  for (const char* key : {"a", "b", "c", "d", "e"}) {
    counters = join({counters, begin(Opcode::kAdd, key, 1).bytes()});
  }
  session.add("counters", join({numbers({1}), step(0, counters), step(1, counters)}));
  const Bytes explain = begin(Opcode::kExplain).bytes();
  const Bytes set = begin(Opcode::kSet, "k", "text").bytes();
  const Bytes add = begin(Opcode::kAdd, "k", 1).bytes();
  session.add("refusal", join({numbers({1}), step(0, join({explain, set, add, get}))}));
  session.add("last_words", join({numbers({1}), step(0, join({explain, numbers({200})}))}));
  const Bytes barrier = begin(Opcode::kBarrier, "b", 2).bytes();
  session.add("barrier_of_two", join({numbers({1}), step(0, barrier), step(1, barrier)}));
}

void write_store_log(const std::filesystem::path& root) {
  using store::StepKind;
  const Corpus corpus(root, "store_log");
  const Bytes header = store::encode_log_header({});
  const store::Change values{{.kind = StepKind::kSet, .key = "k", .value = "value"},
                             {.kind = StepKind::kAppend, .key = "k", .value = "more"},
                             {.kind = StepKind::kErase, .key = "k"}};
  const store::Change queue{{.kind = StepKind::kPush, .key = "q", .value = "value"},
                            {.kind = StepKind::kPop, .key = "q"}};
  const store::Change count{{.kind = StepKind::kCount, .key = "b", .world_size = 2}};
  const Bytes records = join({store::encode_log_record(values),
                              store::encode_log_record(queue),
                              store::encode_log_record(count),
                              store::encode_log_record(count)});
  corpus.add("empty", header);
  corpus.add("records", join({header, records}));
  corpus.add("torn", join({header, Bytes(records.begin(), records.end() - 3)}));
  for (const store::Change& change : {values, queue, count}) {
    ByteWriter payload;
    store::encode(payload, change);
    const auto name = "payload_" + std::to_string(static_cast<int>(change.front().kind));
    corpus.add(name.c_str(), join({header, payload.bytes()}));
  }
}

void write_rosters(const std::filesystem::path& root) {
  const auto entry = [](int rank,
                        std::uint16_t version,
                        const char* release = "1.2.3",
                        const rendezvous::BackendNeed& backend = {}) {
    return bytes_of(rendezvous::encode_entry({.version = version,
                                              .release = release,
                                              .nonce = 0x123456789ABCDEF0,
                                              .member = {.rank = rank,
                                                         .world_size = 4,
                                                         .host = "node-a",
                                                         .pid = 4123,
                                                         .node = "left",
                                                         .address = "10.0.0.2",
                                                         .port = 4123,
                                                         .endpoint = "unisono-1",
                                                         .backend = backend}}));
  };
  const Corpus corpus(root, "roster");
  corpus.add("one", entry(0, net::kProtocolVersion));
  corpus.add("two", join({entry(0, net::kProtocolVersion), entry(3, net::kProtocolVersion)}));
  corpus.add("doubled", join({entry(1, net::kProtocolVersion), entry(1, net::kProtocolVersion)}));
  corpus.add("impossible", entry(-1, net::kProtocolVersion));
  corpus.add("versions",
             join({entry(0, net::kProtocolVersion), entry(1, net::kProtocolVersion + 1)}));
  corpus.add("releases",
             join({entry(0, net::kProtocolVersion), entry(1, net::kProtocolVersion, "1.2.4")}));
  corpus.add("backends",
             join({entry(0, net::kProtocolVersion, "1.2.3", {.obstacle = "no GPU"}),
                   entry(1, net::kProtocolVersion, "1.2.3", {.falls_back = false})}));
}

void write_key_value_space(const std::filesystem::path& root) {
  const Corpus corpus(root, "key_value_space");
  const std::string note = rendezvous::encode_record(
      {.secret = "00112233445566778899aabbccddeeff", .address = "10.0.0.2", .port = 41234});
  corpus.add("note", bytes_of(note));
  corpus.add("note_secret", bytes_of(rendezvous::encode_record({.secret = "00ff"})));
  corpus.add("note_place", bytes_of(rendezvous::encode_record({.address = "fd77::1", .port = 1})));
  corpus.add("answer", bytes_of("cmd=get_result rc=0 msg=success value=" + note));
  corpus.add("refusal", bytes_of("cmd=get_result rc=-1 msg=key_a_not_found"));
}

void write_launch(const std::filesystem::path& root) {
  const Corpus corpus(root, "launch");
  corpus.add("spawn", launch::encode(launch::Spawn{3, {"RANK=3", "EMPTY=", ""}, "", 0, {4, 5}}));
  corpus.add("signal", launch::encode(launch::Signal{15}));
  corpus.add("kill_all", launch::encode(launch::KillAll{}));
  corpus.add("started", launch::encode(launch::Started{1, 4711}));
  corpus.add("spawn_failed", launch::encode(launch::SpawnFailed{2, 13, true}));
  corpus.add("exited", launch::encode(launch::Exited{0, 0x8b}));
  corpus.add("idle", launch::encode(launch::Idle{}));
  corpus.add("stuck", launch::encode(launch::Stuck{{5, 6}}));
  corpus.add("join", launch::nodes::encode(launch::nodes::Join{"alpha", 17, 4, 1, 2, 3, "night"}));
  corpus.add("start", launch::nodes::encode(launch::nodes::Start{7, 1, 2, 4, 8, 1, 3, "night"}));
  corpus.add("waits",
             launch::nodes::encode(launch::nodes::Waits{
                 7, 3, {{30'000, "barrier #1", {1, 2}}, {5'000, "recv (from any rank)", {}}}}));
  corpus.add("give_up",
             launch::nodes::encode(launch::nodes::GiveUp{7, 1, 30'000, "rank 3 in barrier #1"}));
  corpus.add("begin",
             launch::hosts::encode(launch::hosts::Begin{
                 "alpha", "secret", "/data/run", {"A=1"}, {"run", "--", "prog"}, true, false}));
  corpus.add("output", launch::hosts::encode(launch::hosts::Output{true, "loss 0.5\n"}));
}

void write_wait_records(const std::filesystem::path& root) {
  using Time = Deadline::Clock::time_point;
  const Corpus corpus(root, "wait_record");
  const LongWait barrier{.since = Time(std::chrono::seconds(17)),
                         .seen = Time(std::chrono::seconds(47)),
                         .operation = "barrier #1",
                         .late = {1, 2}};
  const LongWait receive{.since = Time(std::chrono::seconds(40)),
                         .seen = Time(std::chrono::seconds(47)),
                         .operation = "recv (f32[4], from any rank, tag 3)",
                         .late = {}};
  corpus.add("none", encode(WaitRecord{.pid = 4123}));
  corpus.add("two", encode(WaitRecord{.pid = 4123, .waits = {barrier, receive}}));
}

}  // namespace
}  // namespace unisono::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  try {
    unisono::fuzz::write_frames(argv[1]);
    unisono::fuzz::write_packets(argv[1]);
    unisono::fuzz::write_hellos(argv[1]);
    unisono::fuzz::write_store(argv[1]);
    unisono::fuzz::write_store_log(argv[1]);
    unisono::fuzz::write_rosters(argv[1]);
    unisono::fuzz::write_key_value_space(argv[1]);
    unisono::fuzz::write_launch(argv[1]);
    unisono::fuzz::write_wait_records(argv[1]);
    unisono::fuzz::write_data(argv[1]);
    unisono::fuzz::write_media(argv[1]);
    unisono::fuzz::write_checkpoints(argv[1]);
    unisono::fuzz::write_schedules(argv[1]);
    unisono::fuzz::write_pipeline_messages(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_seeds: %s\n", error.what());
    return 1;
  }
  return 0;
}
