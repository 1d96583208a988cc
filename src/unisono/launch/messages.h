#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace unisono::launch {

/// Appends a message to the output of a stream, preceded by the length of the message (u32, without
/// the length field itself).
inline void append_frame(std::vector<std::byte>& stream, std::span<const std::byte> body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  const std::size_t begin = stream.size();
  stream.resize(begin + sizeof length + body.size());
  std::memcpy(stream.data() + begin, &length, sizeof length);
  std::memcpy(stream.data() + begin + sizeof length, body.data(), body.size());
}

/// Splits a received stream into the messages that append_frame() wrote. Not thread-safe.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

  /// Appends received bytes.
  void feed(std::span<const std::byte> bytes) {
    input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
    input_.insert(input_.end(), bytes.begin(), bytes.end());
  }

  /// Returns the next complete message, valid until feed(). Returns std::nullopt if no message is
  /// complete or the stream is broken.
  [[nodiscard]] std::optional<std::span<const std::byte>> next() {
    std::uint32_t length = 0;
    if (is_broken_ || input_.size() - begin_ < sizeof length) {
      return std::nullopt;
    }
    std::memcpy(&length, input_.data() + begin_, sizeof length);
    is_broken_ = length > max_message_bytes_;
    if (is_broken_ || input_.size() - begin_ - sizeof length < length) {
      return std::nullopt;
    }
    const auto body = std::span(input_).subspan(begin_ + sizeof length, length);
    begin_ += sizeof length + length;
    return body;
  }

  /// Returns true if a length in the stream exceeds the limit; no message follows.
  [[nodiscard]] bool is_broken() const { return is_broken_; }

 private:
  std::size_t max_message_bytes_;
  std::vector<std::byte> input_;
  std::size_t begin_ = 0;  // Begin of the input that next() has not returned.
  bool is_broken_ = false;
};

/// Heartbeat settings by which both sides of a connection detect a peer that disappeared without
/// closing it.
struct KeepAlive {
  std::chrono::milliseconds interval = std::chrono::seconds(5);
  int max_attempts = 3;  ///< Intervals without a message after which the peer counts as lost.

  /// Returns the time without a message after which the peer counts as lost.
  [[nodiscard]] std::chrono::milliseconds longest_silence() const {
    return interval * max_attempts;
  }
};

// Messages from agent to guardian.

/// Starts the program as this rank. The message carries its stdin, stdout and stderr.
struct Spawn {
  std::int32_t local_rank = 0;
  /// "NAME=value", added to the environment of the guardian.
  std::vector<std::string> environment;
  std::string argument = {};      ///< A further argument; empty: no argument.
  std::uint32_t argument_at = 0;  ///< Index in argv at which the argument is inserted.
  /// Processors to bind the rank to; empty: as the guardian.
  std::vector<std::int32_t> cores = {};

  static auto members(auto& self) {
    return std::tie(self.local_rank, self.environment, self.argument, self.argument_at, self.cores);
  }
};

/// Sends a signal to every rank. After SIGINT, SIGTERM or SIGHUP, processes that a rank leaves
/// behind are ended as well.
struct Signal {
  std::int32_t signal_number = 0;

  static auto members(auto& self) { return std::tie(self.signal_number); }
};

/// Kills every descendant. The answer is Idle or Stuck.
struct KillAll {
  static auto members(auto& /*self*/) { return std::tie(); }
};

// Messages from guardian to agent.

struct Started {
  std::int32_t local_rank = 0;
  std::int32_t pid = 0;

  static auto members(auto& self) { return std::tie(self.local_rank, self.pid); }
};

struct SpawnFailed {
  std::int32_t local_rank = 0;
  std::int32_t error_number = 0;
  bool is_of_cores = false;  ///< The rank could not be bound; false: exec failed.

  static auto members(auto& self) {
    return std::tie(self.local_rank, self.error_number, self.is_of_cores);
  }
};

struct Exited {
  std::int32_t local_rank = 0;
  std::int32_t status = 0;  ///< Status of wait(2).

  static auto members(auto& self) { return std::tie(self.local_rank, self.status); }
};

/// The guardian has no descendants.
struct Idle {
  static auto members(auto& /*self*/) { return std::tie(); }
};

/// Processes that SIGKILL did not end in time (of another user, or in a hanging system call).
struct Stuck {
  std::vector<std::int32_t> pids;

  static auto members(auto& self) { return std::tie(self.pids); }
};

using Message = std::variant<Spawn, Signal, KillAll, Started, SpawnFailed, Exited, Idle, Stuck>;

inline constexpr std::size_t kMaxMessageBytes = 65536;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Returns std::nullopt if the bytes are not a valid message.
[[nodiscard]] std::optional<Message> decode(std::span<const std::byte> bytes);

}  // namespace unisono::launch

namespace unisono::launch::hosts {

// Messages from the launcher that the user called to the launcher that it starts on a host.

/// Describes the run on the host; the first message of the connection.
struct Begin {
  std::string label = {};                   ///< The host's name, as the user wrote it.
  std::string secret = {};                  ///< Secret of the job.
  std::string directory = {};               ///< Working directory.
  std::vector<std::string> variables = {};  ///< "NAME=value", added to the environment of the host.
  std::vector<std::string> arguments = {};  ///< Arguments of `unisono`.
  bool out_has_colour = false;              ///< The output ends on a terminal that has colours.
  bool err_has_colour = false;

  static auto members(auto& self) {
    return std::tie(self.label,
                    self.secret,
                    self.directory,
                    self.variables,
                    self.arguments,
                    self.out_has_colour,
                    self.err_has_colour);
  }
};

/// Forwards a signal that the user's launcher received.
struct Signal {
  std::int32_t signal_number = 0;
  bool is_from_terminal = false;

  static auto members(auto& self) { return std::tie(self.signal_number, self.is_from_terminal); }
};

/// Asks the host to end its ranks, because the job cannot continue.
struct Stop {
  std::string why = {};

  static auto members(auto& self) { return std::tie(self.why); }
};

// Messages from the host.

/// The launcher runs on the host.
struct Ready {
  std::string release = {};

  static auto members(auto& self) { return std::tie(self.release); }
};

/// Whole lines of output for the user.
struct Output {
  bool is_err = false;
  std::string text = {};

  static auto members(auto& self) { return std::tie(self.is_err, self.text); }
};

/// Describes how the job ended on the host; the last message of the connection.
struct Ended {
  std::int32_t exit_code = 0;
  std::string report = {};

  static auto members(auto& self) { return std::tie(self.exit_code, self.report); }
};

// Messages in both directions.

/// Heartbeat.
struct Alive {
  static auto members(auto& /*self*/) { return std::tie(); }
};

using Message = std::variant<Begin, Signal, Stop, Ready, Output, Ended, Alive>;

/// Limit of a text; a command line and an environment fit into it.
inline constexpr std::size_t kMaxTextBytes = 1 << 20;
inline constexpr std::size_t kMaxMessageBytes = 8 << 20;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Returns std::nullopt if the bytes are not a valid message.
[[nodiscard]] std::optional<Message> decode(std::span<const std::byte> bytes);

}  // namespace unisono::launch::hosts

namespace unisono::launch::nodes {

// Messages from a node to the coordinator.

/// A node asks to take part; the first message of a connection.
struct Join {
  std::string host = {};
  std::int32_t pid = 0;
  std::int32_t n_workers = 1;
  std::int32_t wanted_rank = -1;  ///< Node rank; -1: assigned by the coordinator.
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  std::string run_id = {};  ///< Empty: the run ID of the coordinator.
  bool is_coordinator = false;
  std::int64_t stall_ms = 0;  ///< Value of --stall-timeout; 0: not given.

  static auto members(auto& self) {
    return std::tie(self.host,
                    self.pid,
                    self.n_workers,
                    self.wanted_rank,
                    self.min_nodes,
                    self.max_nodes,
                    self.run_id,
                    self.is_coordinator,
                    self.stall_ms);
  }
};

/// The first failure of a rank on the node, which ends the other ranks.
struct Failed {
  std::uint64_t generation = 0;
  std::int32_t exit_code = 1;
  std::string what = {};  ///< Description of one line.

  static auto members(auto& self) { return std::tie(self.generation, self.exit_code, self.what); }
};

/// The last rank of this generation on the node has ended.
struct Over {
  std::uint64_t generation = 0;
  std::string report = {};  ///< Report about a failure; empty without a failure.

  static auto members(auto& self) { return std::tie(self.generation, self.report); }
};

/// The node leaves the job and ends the local ranks, because a user or a failure of the node
/// requires that.
struct Leave {
  std::int32_t exit_code = 1;
  std::string why = {};

  static auto members(auto& self) { return std::tie(self.exit_code, self.why); }
};

/// A wait of a rank for other ranks.
struct Wait {
  std::int64_t waited_ms = 0;
  std::string operation = {};
  std::vector<std::int32_t> late = {};  ///< Late ranks; empty: any rank may end the wait.

  static auto members(auto& self) { return std::tie(self.waited_ms, self.operation, self.late); }
};

/// Present long waits of a rank of the node; sent only if --stall-timeout is given.
struct Waits {
  std::uint64_t generation = 0;
  std::int32_t rank = 0;
  std::vector<Wait> waits = {};

  static auto members(auto& self) { return std::tie(self.generation, self.rank, self.waits); }
};

// Messages from the coordinator to a node.

/// The node cannot take part.
struct Refused {
  std::string why = {};

  static auto members(auto& self) { return std::tie(self.why); }
};

/// Text for the user.
struct Notice {
  std::string text = {};

  static auto members(auto& self) { return std::tie(self.text); }
};

/// The node must start ranks.
struct Start {
  std::uint64_t generation = 0;
  std::int32_t node_rank = 0;
  std::int32_t n_nodes = 1;
  std::int32_t first_rank = 0;
  std::int32_t world_size = 1;
  std::int32_t restart_count = 0;
  std::int32_t max_restarts = 0;
  std::string run_id = {};
  /// The coordinator serves the ranks' store; false: rank 0 serves the store.
  bool has_store = true;
  std::uint16_t master_port = 0;

  static auto members(auto& self) {
    return std::tie(self.generation,
                    self.node_rank,
                    self.n_nodes,
                    self.first_rank,
                    self.world_size,
                    self.restart_count,
                    self.max_restarts,
                    self.run_id,
                    self.has_store,
                    self.master_port);
  }
};

/// The node must end the ranks of this generation.
struct Stop {
  std::uint64_t generation = 0;
  std::string why = {};
  bool is_by_signal = false;  ///< The cause is a signal to another node.

  static auto members(auto& self) { return std::tie(self.generation, self.why, self.is_by_signal); }
};

/// A rank of the node counts as failed, because other ranks have waited for it too long.
struct GiveUp {
  std::uint64_t generation = 0;
  std::int32_t rank = 0;
  std::int64_t waited_ms = 0;
  std::string waits = {};  ///< The waits, one line for each operation.

  static auto members(auto& self) {
    return std::tie(self.generation, self.rank, self.waited_ms, self.waits);
  }
};

/// The job is over.
struct End {
  std::int32_t exit_code = 0;
  std::string report = {};

  static auto members(auto& self) { return std::tie(self.exit_code, self.report); }
};

// Messages in both directions.

/// Heartbeat.
struct Alive {
  static auto members(auto& /*self*/) { return std::tie(); }
};

using Message = std::
    variant<Join, Failed, Over, Leave, Refused, Notice, Start, Stop, End, Alive, Waits, GiveUp>;

/// Limit of a text; senders truncate longer texts.
inline constexpr std::size_t kMaxTextBytes = 64 << 10;
inline constexpr std::size_t kMaxMessageBytes = kMaxTextBytes + 4096;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Returns std::nullopt if the bytes are not a valid message.
[[nodiscard]] std::optional<Message> decode(std::span<const std::byte> bytes);

}  // namespace unisono::launch::nodes
