#include "unisono/transport/shm/cache_line.h"

#include <algorithm>
#include <cstddef>

#include "unisono/transport/shm/control_block.h"

namespace unisono::shm {
namespace {

// Still in the first cache when they are handed back.
constexpr std::size_t kBlock = 4096;

bool is_worth_it() noexcept {
#if defined(__x86_64__)
  static const bool is_amd = __builtin_cpu_is("amd") != 0;
  return is_amd;
#else
  return false;
#endif
}

void write_as_it_is(volatile std::byte& byte) noexcept {
  const std::byte value = byte;
  byte = value;
}

void write_as_they_are(std::byte* bytes, std::size_t n_bytes) noexcept {
  for (std::size_t at = 0; at < n_bytes; at += kCacheLine) {
    write_as_it_is(bytes[at]);
  }
  if (n_bytes > 0) {
    write_as_it_is(bytes[n_bytes - 1]);  // Where the bytes begin amid a line, of one more.
  }
}

}  // namespace

void hand_back(std::byte* bytes, std::size_t n_bytes) noexcept {
  if (is_worth_it()) {
    write_as_they_are(bytes, n_bytes);
  }
}

void take_over(std::byte* to, std::byte* from, std::size_t n_bytes) noexcept {
  if (!is_worth_it()) {
    std::copy_n(from, n_bytes, to);
    return;
  }
  for (std::size_t at = 0; at < n_bytes; at += kBlock) {
    const std::size_t n = std::min(kBlock, n_bytes - at);
    std::copy_n(from + at, n, to + at);
    write_as_they_are(from + at, n);
  }
}

}  // namespace unisono::shm
