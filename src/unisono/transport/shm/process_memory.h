#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace unisono::shm {

/// Shows the other ranks of the node that a process is the one they take it for. Lies in shared
/// memory, zeroed at first.
struct ProcessProof {
  /// What lies at `address` of the process: random, never 0. Written last.
  std::atomic<std::uint64_t> value;
  std::uint64_t address;
};

/// Fills `into` from an address of a process. False, with errno, when that fails.
[[nodiscard]] bool read_process(pid_t pid,
                                std::uint64_t address,
                                std::span<std::byte> into) noexcept;

/// Reads the private memory of another process of this node, where the system allows it.
class ProcessMemory {
 public:
  /// `pid` is what the process calls itself; `proof` lies in its arena. Unless `is_allowed`, it
  /// is not readable.
  ProcessMemory(pid_t pid, const ProcessProof& proof, bool is_allowed)
      : pid_(pid), proof_(proof), state_(is_allowed ? State::kUnknown : State::kNot) {}

  /// Whether reading works. Looks at the first call.
  [[nodiscard]] bool is_readable() noexcept;

  /// Fills `into` from an address of the process. False, with errno, when that fails.
  [[nodiscard]] bool read(std::uint64_t address, std::span<std::byte> into) const noexcept {
    return read_process(pid_, address, into);
  }

 private:
  enum class State : std::uint8_t { kUnknown, kReadable, kNot };

  // A pid may mean another process here, in a pid namespace of its own.
  [[nodiscard]] bool is_that_process() const noexcept;

  pid_t pid_;
  const ProcessProof& proof_;
  State state_;
};

}  // namespace unisono::shm
