#include "unisono/engine/native/memory/peer_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/engine/native/collectives/seconds_of.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/native_parts.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/process_memory.h"

namespace unisono::engine {
namespace {

// More than the caches nearest to a core hold.
constexpr std::size_t kSampleBytes = 512 << 10;
constexpr int kSamples = 8;

struct CopyTimes {
  double once;   // By the kernel, out of a process.
  double twice;  // Into a staging buffer, and out of it.

  // Of two copies between ranks one more finds what it reads in another core's cache, as a single
  // process can't show.
  [[nodiscard]] bool is_once_faster() const { return once < 1.5 * twice; }
};

// Out of this very process: the kernel does the same for any other.
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
      ranks_(parts.ranks),
      is_forced_(parts.single_copy == SingleCopy::kAlways),
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
  if (ranks_.logger().is_enabled(LogLevel::kDebug)) {
    ranks_.logger().debug(
        fmt::format("{} {} read the private memory of its node's ranks; {} KiB take {:.1f} us in "
                    "one copy, {:.1f} us in two",
                    ranks_.prefix(),
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
                          ranks_.describe(control_block_.rank_of(local_rank)),
                          std::generic_category().message(error_number)));
}

}  // namespace unisono::engine
