#include "unisono/transport/shm/heap.h"

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono::shm {
namespace {

constexpr std::int64_t kPage = 4096;

std::int64_t round_up(std::int64_t n_bytes) {
  return std::max((n_bytes + kPage - 1) / kPage * kPage, kPage);
}

}  // namespace

Heap::Heap(const Arena& arena) : arena_(arena), gaps_{{0, arena.n_bytes()}} {}

std::optional<std::int64_t> Heap::try_allocate(std::int64_t n_bytes) {
  if (n_bytes > arena_.n_bytes()) {
    return std::nullopt;
  }
  const std::int64_t size = round_up(n_bytes);
  const MutexLock lock(mutex_);
  const auto gap = std::find_if(
      gaps_.begin(), gaps_.end(), [&](const auto& entry) { return entry.second >= size; });
  if (gap == gaps_.end()) {
    return std::nullopt;
  }
  const auto [offset, gap_size] = *gap;
  gaps_.erase(gap);
  if (gap_size > size) {
    gaps_[offset + size] = gap_size - size;
  }
  parts_[offset] = size;
  return offset;
}

void Heap::free(std::int64_t offset) {
  std::int64_t size = 0;
  {
    const MutexLock lock(mutex_);
    const auto part = parts_.find(offset);
    UNISONO_CHECK(part != parts_.end(), "shared memory is freed that was not allocated");
    size = part->second;
    parts_.erase(part);
  }
  const int punched = ::fallocate(
      arena_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, arena_.file_offset() + offset, size);
  if (punched != 0) {
    std::memset(arena_.data() + offset, 0, static_cast<std::size_t>(size));
  }
  const MutexLock lock(mutex_);
  auto gap = gaps_.emplace(offset, size).first;
  if (const auto next = std::next(gap); next != gaps_.end() && offset + size == next->first) {
    gap->second += next->second;
    gaps_.erase(next);
  }
  if (gap != gaps_.begin()) {
    const auto previous = std::prev(gap);
    if (previous->first + previous->second == gap->first) {
      previous->second += gap->second;
      gaps_.erase(gap);
    }
  }
}

}  // namespace unisono::shm
