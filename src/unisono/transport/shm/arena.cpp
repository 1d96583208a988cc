#include "unisono/transport/shm/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::shm {
namespace {

constexpr auto kSpan = static_cast<std::size_t>(kPlacesBytes);

// Returns the distance from `address` to the place of the next arena.
std::size_t distance_to_next_place(const void* address) {
  static std::atomic<std::size_t> n_arenas = 0;
  const std::size_t place =
      n_arenas.fetch_add(1, std::memory_order_relaxed) * static_cast<std::size_t>(kHugePageBytes);
  return (place - reinterpret_cast<std::uintptr_t>(address)) % kSpan;
}

Error mapping_failed(std::int64_t n_bytes, int error_number) {
  return system_error(
      fmt::format("mapping {} bytes of shared memory (a smaller UNISONO_ARENA_BYTES may fit)",
                  n_bytes),
      error_number);
}

// Reserves address space at a separate place (see kPlacesBytes).
std::byte* reserve(std::int64_t n_bytes) {
  const auto n_needed = static_cast<std::size_t>(n_bytes);
  void* const reserved = ::mmap(
      nullptr, n_needed + kSpan, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    throw mapping_failed(n_bytes, errno);
  }
  const std::size_t n_before = distance_to_next_place(reserved);
  std::byte* const begin = static_cast<std::byte*>(reserved) + n_before;
  ::munmap(reserved, n_before);
  ::munmap(begin + n_needed, kSpan - n_before);
  return begin;
}

std::byte* map_shared(int fd, std::int64_t n_bytes) {
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t n_mapped = (n_bytes + page - 1) / page * page;
  std::byte* const data = reserve(n_mapped);
  if (::mmap(data,
             static_cast<std::size_t>(n_mapped),
             PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
             fd,
             0) == MAP_FAILED) {
    const int error_number = errno;
    ::munmap(data, static_cast<std::size_t>(n_mapped));
    throw mapping_failed(n_bytes, error_number);
  }
  // A fork child that keeps the mapping would keep the memory of a dead rank alive.
  ::madvise(data, static_cast<std::size_t>(n_bytes), MADV_DONTFORK);
  return data;
}

}  // namespace

Arena Arena::create(std::int64_t n_bytes) {
  Fd memory(::memfd_create("unisono-arena", MFD_CLOEXEC));
  if (!memory.is_open()) {
    throw system_error("creating shared memory (memfd_create)", errno);
  }
  if (::ftruncate(memory.get(), n_bytes) != 0) {
    throw system_error(
        fmt::format("sizing shared memory to {} bytes (UNISONO_ARENA_BYTES)", n_bytes), errno);
  }
  const auto mapping = std::make_shared<const Mapping>(std::move(memory), n_bytes);
  return {mapping, mapping->data, n_bytes};
}

Arena Arena::map(Fd memory, std::int64_t n_bytes) {
  struct stat status{};
  if (::fstat(memory.get(), &status) != 0) {
    throw system_error("getting the size of a peer's shared memory", errno);
  }
  // Access behind the end of the file would raise SIGBUS later.
  if (n_bytes <= 0 || status.st_size != n_bytes) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("a peer's shared memory has {} bytes where {} were announced",
                            status.st_size,
                            n_bytes));
  }
  const auto mapping = std::make_shared<const Mapping>(std::move(memory), n_bytes);
  return {mapping, mapping->data, n_bytes};
}

Arena Arena::part(std::int64_t offset, std::int64_t n_bytes) const {
  UNISONO_CHECK(offset >= 0 && n_bytes > 0 && offset <= n_bytes_ - n_bytes,
                "a part of an arena is outside");
  return {mapping_, data_ + offset, n_bytes};
}

Arena::Mapping::Mapping(Fd file, std::int64_t size)
    : memory(std::move(file)), n_bytes(size), data(map_shared(memory.get(), size)) {}

Arena::Mapping::~Mapping() {
  ::munmap(data, static_cast<std::size_t>(n_bytes));
}

Arena::Arena(std::shared_ptr<const Mapping> mapping, std::byte* data, std::int64_t n_bytes)
    : mapping_(std::move(mapping)), data_(data), n_bytes_(n_bytes) {}

std::optional<std::int64_t> Arena::offset_of(const void* pointer, std::int64_t n_bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  if (n_bytes > n_bytes_ || at < begin ||
      at - begin > static_cast<std::uintptr_t>(n_bytes_ - n_bytes)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(at - begin);
}

void Arena::prefer_huge_pages(std::int64_t offset, std::int64_t n_bytes) const noexcept {
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t begin = offset / page * page;
  const std::int64_t end = std::min((offset + n_bytes + page - 1) / page * page, n_bytes_);
  ::madvise(data_ + begin, static_cast<std::size_t>(end - begin), MADV_HUGEPAGE);
}

std::int64_t default_arena_bytes() {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  const std::int64_t n_bytes =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  return (n_bytes + kGiB - 1) / kGiB * kGiB;
}

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
