#include "unisono/engine/native/shared_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

namespace {

// Below this size the processor's translation buffers (TLB) suffice without huge pages.
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
  // The deleter's reference keeps arena and heap alive until the buffer is gone.
  std::shared_ptr<void> owner(data, [self = shared_from_this(), offset, pid = ::getpid()](void*) {
    if (::getpid() == pid) {
      self->release(offset);
    } else {
      // Leaked on purpose: in this child, other memory and files may have taken the addresses and
      // descriptors of the parent's arena.
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

namespace {

// More bytes than the caches nearest to a core hold.
constexpr std::size_t kSampleBytes = 512 << 10;
constexpr int kSamples = 8;

// Seconds for a copy of kSampleBytes.
struct CopyTimes {
  double once;   // A copy by the kernel, out of a process.
  double twice;  // Copies into a staging buffer and out of it.

  // Two copies between ranks read once more from another core's cache, which a measurement in a
  // single process does not include. The factor accounts for this cost.
  [[nodiscard]] bool is_once_faster() const { return once < 1.5 * twice; }
};

// Reads from this process itself. The kernel does the same work for any other process.
CopyTimes measure_copies() {
  std::vector<std::byte> from(kSampleBytes, std::byte{1});
  std::vector<std::byte> between(kSampleBytes);
  std::vector<std::byte> to(kSampleBytes);
  CopyTimes least{.once = std::numeric_limits<double>::max(),
                  .twice = std::numeric_limits<double>::max()};
  for (int sample = 0; sample < kSamples; ++sample) {
    least.once = std::min(least.once, seconds_of([&] {
                            (void)shm::read_process(
                                ::getpid(), reinterpret_cast<std::uintptr_t>(from.data()), to);
                          }));
    least.twice = std::min(least.twice, seconds_of([&] {
                             std::memcpy(between.data(), from.data(), kSampleBytes);
                             std::memcpy(to.data(), between.data(), kSampleBytes);
                           }));
  }
  return least;
}

const CopyTimes& copy_times() {
  static const CopyTimes times = measure_copies();
  return times;
}

}  // namespace

bool is_single_copy_faster() {
  return copy_times().is_once_faster();
}

PeerMemory::PeerMemory(const NativeParts& parts, GroupTransports& transports, bool has_cores)
    : control_block_(transports.control_block()),
      group_(parts.group),
      is_forced_(parts.config.single_copy == SingleCopy::kAlways),
      has_cores_(has_cores) {
  for (int peer = 0; peer < control_block_.local_world_size(); ++peer) {
    processes_.push_back(transports.endpoint().process_memory(peer));
  }
}

bool PeerMemory::is_shared() {
  if (!is_shared_ && has_learnt_) {
    is_shared_ = control_block_.do_all_read_peers();
  }
  return is_shared_;
}

void PeerMemory::learn() {
  if (std::exchange(has_learnt_, true)) {
    return;
  }
  const bool can_read = std::ranges::all_of(
      processes_, [](shm::ProcessMemory& process) { return process.is_readable(); });
  const CopyTimes& times = copy_times();
  const bool is_wanted = is_forced_ || times.is_once_faster();
  if (can_read && is_wanted) {
    control_block_.note_reading_peers();
  }
  if (group_.logger.is_enabled(LogLevel::kDebug)) {
    group_.logger.debug(
        fmt::format("{} {} read the private memory of its node's ranks; {} KiB take {:.1f} us in "
                    "one copy, {:.1f} us in two",
                    group_.prefix,
                    !can_read   ? "may not"
                    : is_wanted ? "will"
                                : "could, but will not",
                    kSampleBytes >> 10,
                    times.once * 1e6,
                    times.twice * 1e6));
  }
}

void PeerMemory::read(int local_rank, std::uint64_t address, std::span<std::byte> into) const {
  if (processes_[static_cast<std::size_t>(local_rank)].read(address, into)) {
    return;
  }
  const int error_number = errno;
  throw Error(error_number == ESRCH ? ErrorCode::kPeerLost : ErrorCode::kSystem,
              fmt::format("can't read the memory of {}: {}",
                          group_.describe(control_block_.rank_of(local_rank)),
                          std::generic_category().message(error_number)));
}

}  // namespace unisono::engine
