#include "unisono/engine/native/memory/symmetric_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::engine {

namespace {

// With less, what the processor remembers of page tables is enough.
constexpr std::int64_t kLeastHuge = 16 << 20;

}  // namespace

SymmetricMemory::SymmetricMemory(std::shared_ptr<const shm::Arena> arena)
    : arena_(std::move(arena)), heap_(*arena_) {}

Buffer SymmetricMemory::allocate(std::int64_t count, DType dtype) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(dtype));
  if (count < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("allocate: a count of {} elements is negative", count));
  }
  if (count > arena_->n_bytes() / element_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("allocate: {} elements of {} do not fit into the arena of {} bytes "
                            "(UNISONO_ARENA_BYTES)",
                            count,
                            to_string(dtype),
                            arena_->n_bytes()));
  }
  const std::int64_t n_bytes = count * element_bytes;
  const std::int64_t offset = reserve(n_bytes);
  if (n_bytes >= kLeastHuge) {
    arena_->prefer_huge_pages(offset, n_bytes);
  }
  std::byte* const data = arena_->data() + offset;
  // The deleter's share keeps arena and heap alive until the buffer is gone.
  std::shared_ptr<void> owner(data, [self = shared_from_this(), offset, pid = ::getpid()](void*) {
    if (::getpid() == pid) {
      self->release(offset);
    } else {
      // Never destroyed: other memory and files may be where the parent has the arena's.
      new std::shared_ptr<SymmetricMemory>(self);
    }
  });
  return {.data = data, .count = count, .dtype = dtype, .device = {}, .owner = std::move(owner)};
}

std::int64_t SymmetricMemory::reserve(std::int64_t n_bytes) {
  const std::optional<std::int64_t> offset = heap_.try_allocate(n_bytes);
  if (!offset) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "allocate: no room left for {} bytes in the arena of {} bytes (UNISONO_ARENA_BYTES)",
            n_bytes,
            arena_->n_bytes()));
  }
  return *offset;
}

}  // namespace unisono::engine
