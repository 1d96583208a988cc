#include "attacks/script/guarded_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

namespace unisono::attacks {
namespace {

// A multiple of every element size and of the alignment of symmetric memory.
constexpr std::int64_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};

Buffer allocate(std::int64_t n_bytes, ProcessGroup* group) {
  if (group != nullptr) {
    return group->allocate(n_bytes, DType::kUInt8);
  }
  const std::shared_ptr<std::byte[]> memory(new std::byte[static_cast<std::size_t>(n_bytes)]);
  return {.data = memory.get(), .count = n_bytes, .dtype = DType::kUInt8, .owner = memory};
}

std::span<std::byte> bytes_of(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())};
}

}  // namespace

GuardedMemory::GuardedMemory(std::int64_t count, DType dtype, ProcessGroup* group)
    : whole_(allocate(count * static_cast<std::int64_t>(size_of(dtype)) + 2 * kGuardBytes, group)),
      buffer_{.data = static_cast<std::byte*>(whole_.data) + kGuardBytes,
              .count = count,
              .dtype = dtype,
              .owner = whole_.owner} {
  std::ranges::fill(bytes_of(whole_), kGuard);
}

bool GuardedMemory::is_intact() const {
  const auto is_guard = [](std::byte byte) { return byte == kGuard; };
  const std::span bytes = bytes_of(whole_);
  return std::ranges::all_of(bytes.first(kGuardBytes), is_guard) &&
         std::ranges::all_of(bytes.last(kGuardBytes), is_guard);
}

}  // namespace unisono::attacks
