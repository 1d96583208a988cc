#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace unisono::launch {

// Agent to guardian.

/// Start the program as this rank. Its stdin, stdout and stderr travel with the message.
struct Spawn {
  std::int32_t local_rank = 0;
  std::vector<std::string> environment;  ///< "NAME=value", added to the guardian's own.
  std::string argument = {};             ///< One more; empty: none.
  std::uint32_t argument_at = 0;         ///< Before which of the program's.
  std::vector<std::int32_t> cores = {};  ///< Processors to be bound to; empty: the guardian's.

  static auto members(auto& self) {
    return std::tie(self.local_rank, self.environment, self.argument, self.argument_at, self.cores);
  }
};

/// Send a signal to every rank. SIGINT, SIGTERM and SIGHUP are for its end: what a rank leaves
/// behind is then ended, too.
struct Signal {
  std::int32_t signal_number = 0;

  static auto members(auto& self) { return std::tie(self.signal_number); }
};

/// Kill every descendant. The answer is Idle, or Stuck.
struct KillAll {
  static auto members(auto& /*self*/) { return std::tie(); }
};

// Guardian to agent.

struct Started {
  std::int32_t local_rank = 0;
  std::int32_t pid = 0;

  static auto members(auto& self) { return std::tie(self.local_rank, self.pid); }
};

struct SpawnFailed {
  std::int32_t local_rank = 0;
  std::int32_t error_number = 0;
  bool is_of_cores = false;  ///< It could not be bound; else not be executed.

  static auto members(auto& self) {
    return std::tie(self.local_rank, self.error_number, self.is_of_cores);
  }
};

struct Exited {
  std::int32_t local_rank = 0;
  std::int32_t status = 0;  ///< As wait(2) gives it.

  static auto members(auto& self) { return std::tie(self.local_rank, self.status); }
};

/// The guardian has no descendant left.
struct Idle {
  static auto members(auto& /*self*/) { return std::tie(); }
};

/// Processes that SIGKILL did not end in time (another user's, or in a hanging system call).
struct Stuck {
  std::vector<std::int32_t> pids;

  static auto members(auto& self) { return std::tie(self.pids); }
};

using Message = std::variant<Spawn, Signal, KillAll, Started, SpawnFailed, Exited, Idle, Stuck>;

inline constexpr std::size_t kMaxMessageBytes = 65536;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Nothing when the bytes are no message.
[[nodiscard]] std::optional<Message> decode(std::span<const std::byte> bytes);

}  // namespace unisono::launch
