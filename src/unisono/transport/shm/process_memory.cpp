#include "unisono/transport/shm/process_memory.h"

#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace unisono::shm {

bool read_process(pid_t pid, std::uint64_t address, std::span<std::byte> into) noexcept {
  while (!into.empty()) {
    const iovec local{.iov_base = into.data(), .iov_len = into.size()};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it is an address of the other process.
    const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = into.size()};
    const ssize_t n_bytes = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n_bytes <= 0) {
      return false;
    }
    into = into.subspan(static_cast<std::size_t>(n_bytes));
    address += static_cast<std::uint64_t>(n_bytes);
  }
  return true;
}

bool ProcessMemory::is_readable() noexcept {
  if (state_ == State::kUnknown) {
    state_ = is_that_process() ? State::kReadable : State::kNot;
  }
  return state_ == State::kReadable;
}

bool ProcessMemory::is_that_process() const noexcept {
  // Pairs with the release of who wrote the proof: the address is there with the value.
  const std::uint64_t expected = proof_.value.load(std::memory_order_acquire);
  std::uint64_t found = 0;
  return expected != 0 && read(proof_.address, std::as_writable_bytes(std::span(&found, 1))) &&
         found == expected;
}

}  // namespace unisono::shm
