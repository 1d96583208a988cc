#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::shm {

/// Proves to the other ranks of the node that a pid denotes the expected process. Lies in shared
/// memory, zero-initialized.
struct ProcessProof {
  /// The value at `address` in the process: random, never 0. Written last.
  std::atomic<std::uint64_t> value;
  std::uint64_t address;
};

/// Fills `into` from an address of a process. Returns false and sets errno on failure.
[[nodiscard]] bool read_process(pid_t pid,
                                std::uint64_t address,
                                std::span<std::byte> into) noexcept;

/// Reads the private memory of another process of this node, if the system permits. Does not own
/// the proof, which lies in the other rank's arena. Not thread-safe. Failures are return values.
class ProcessMemory {
 public:
  /// `pid` is the pid reported by the process; `proof` lies in the process's arena. The memory is
  /// not readable unless `is_allowed`.
  ProcessMemory(pid_t pid, const ProcessProof& proof, bool is_allowed)
      : pid_(pid), proof_(proof), state_(is_allowed ? State::kUnknown : State::kNot) {}

  /// Returns true if reads work. The first call tries a read.
  [[nodiscard]] bool is_readable() noexcept;

  /// Fills `into` from an address of the process. Returns false and sets errno on failure.
  [[nodiscard]] bool read(std::uint64_t address, std::span<std::byte> into) const noexcept {
    return read_process(pid_, address, into);
  }

 private:
  enum class State : std::uint8_t { kUnknown, kReadable, kNot };

  // In another pid namespace the same pid may denote a different process.
  [[nodiscard]] bool is_that_process() const noexcept;

  pid_t pid_;
  const ProcessProof& proof_;
  State state_;
};

/// State of a rank's membership in the job.
enum class SeatState : std::uint32_t {
  kTaken,  ///< The rank takes part or is about to.
  kLeft,   ///< The rank has left the job cleanly.
  kGone    ///< The rank has exited without leaving.
};

/// The shared memory of a node's ranks: an unnamed file that contains an arena for each rank. A
/// single descriptor and mapping give a rank access to the memory of the whole node, whatever the
/// number of ranks. Ranks that are threads of a process share the mapping.
///
/// A handle; the mapping ends with the last handle and arena. Thread-safe. create() and map()
/// throw.
class NodeMemory {
 public:
  /// Creates the file. `arena_bytes` are the sizes of the arenas, in order of rank. Throws
  /// Error(kSystem).
  [[nodiscard]] static NodeMemory create(std::span<const std::int64_t> arena_bytes);

  /// Maps a file that another rank has created. Throws Error(kSystem), or Error(kCorruptData) if
  /// the file is not the memory of `n_ranks` ranks.
  [[nodiscard]] static NodeMemory map(Fd file, std::size_t n_ranks);

  [[nodiscard]] int fd() const { return file_->fd(); }

  /// Returns the arena of a rank, by index among the ranks of the node.
  [[nodiscard]] std::shared_ptr<const Arena> arena(std::size_t index) const;

  [[nodiscard]] std::size_t n_ranks() const;

  /// Random bytes, readable only by ranks that have proved the job's secret.
  using Key = std::array<std::byte, 16>;

  [[nodiscard]] const Key& key() const;

  /// Loads with acquire: writes of the rank before the change of state are visible.
  [[nodiscard]] SeatState state(std::size_t index) const;

  /// Records that this rank leaves the job cleanly.
  void leave(std::size_t index) const;

  /// Records that a rank has exited without leaving. Returns false if the rank has left or the exit
  /// is already recorded.
  [[nodiscard]] bool note_gone(std::size_t index) const;

 private:
  struct Seat;
  struct Header;

  explicit NodeMemory(std::shared_ptr<const Arena> file) : file_(std::move(file)) {}

  [[nodiscard]] Header& header() const;
  [[nodiscard]] Seat& seat(std::size_t index) const;

  std::shared_ptr<const Arena> file_;  // Shared with the arenas, and with threads of this process.
};

}  // namespace unisono::shm
