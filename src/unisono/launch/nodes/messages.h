#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace unisono::launch::nodes {

// Node to coordinator.

/// A node that wants to take part; the first thing that it says.
struct Join {
  std::string host = {};
  std::int32_t pid = 0;
  std::int32_t n_workers = 1;
  std::int32_t wanted_rank = -1;  ///< Node rank; -1: whichever it is given.
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  std::string run_id = {};  ///< Empty: whatever the coordinator's is.
  bool is_coordinator = false;
  std::int64_t stall_ms = 0;  ///< What --stall-timeout says; 0: nothing.

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

/// The node's first rank has failed; it ends the others.
struct Failed {
  std::uint64_t generation = 0;
  std::int32_t exit_code = 1;
  std::string what = {};  ///< One line.

  static auto members(auto& self) { return std::tie(self.generation, self.exit_code, self.what); }
};

/// No rank of this generation is left on the node.
struct Over {
  std::uint64_t generation = 0;
  std::string report = {};  ///< About a failure; empty where there was none.

  static auto members(auto& self) { return std::tie(self.generation, self.report); }
};

/// The node leaves the job and ends its ranks: it was told to, or it can't run them.
struct Leave {
  std::int32_t exit_code = 1;
  std::string why = {};

  static auto members(auto& self) { return std::tie(self.exit_code, self.why); }
};

/// A wait of a rank for others.
struct Wait {
  std::int64_t waited_ms = 0;
  std::string operation = {};
  std::vector<std::int32_t> late = {};  ///< Ranks; none: any may end it.

  static auto members(auto& self) { return std::tie(self.waited_ms, self.operation, self.late); }
};

/// In which long waits a rank of the node is now; only where --stall-timeout is given.
struct Waits {
  std::uint64_t generation = 0;
  std::int32_t rank = 0;
  std::vector<Wait> waits = {};

  static auto members(auto& self) { return std::tie(self.generation, self.rank, self.waits); }
};

// Coordinator to node.

/// The node can't take part.
struct Refused {
  std::string why = {};

  static auto members(auto& self) { return std::tie(self.why); }
};

/// For the user to read.
struct Notice {
  std::string text = {};

  static auto members(auto& self) { return std::tie(self.text); }
};

/// Start the ranks.
struct Start {
  std::uint64_t generation = 0;
  std::int32_t node_rank = 0;
  std::int32_t n_nodes = 1;
  std::int32_t first_rank = 0;
  std::int32_t world_size = 1;
  std::int32_t restart_count = 0;
  std::int32_t max_restarts = 0;
  std::string run_id = {};
  bool has_store = true;  ///< The coordinator serves the ranks' store; else rank 0 is to.
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

/// End the ranks of this generation.
struct Stop {
  std::uint64_t generation = 0;
  std::string why = {};
  bool is_by_signal = false;  ///< To another node.

  static auto members(auto& self) { return std::tie(self.generation, self.why, self.is_by_signal); }
};

/// A rank of the node has failed: others have waited for it for too long.
struct GiveUp {
  std::uint64_t generation = 0;
  std::int32_t rank = 0;
  std::int64_t waited_ms = 0;
  std::string waits = {};  ///< Who has: a line for each operation.

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

// Both ways.

/// Nothing but that the sender is there.
struct Alive {
  static auto members(auto& /*self*/) { return std::tie(); }
};

using Message = std::
    variant<Join, Failed, Over, Leave, Refused, Notice, Start, Stop, End, Alive, Waits, GiveUp>;

/// Longer texts are cut by who sends them.
inline constexpr std::size_t kMaxTextBytes = 64 << 10;
inline constexpr std::size_t kMaxMessageBytes = kMaxTextBytes + 4096;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Nothing when the bytes are no message.
[[nodiscard]] std::optional<Message> decode(std::span<const std::byte> bytes);

}  // namespace unisono::launch::nodes
