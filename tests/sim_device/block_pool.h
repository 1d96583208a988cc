#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "sim_device/device_memory.h"
#include "sim_device/streams.h"

namespace sim {

/// Memory of one device, or pinned memory of the host.
struct MemoryUsage {
  std::size_t allocated = 0;       ///< Bytes of blocks in use.
  std::size_t peak_allocated = 0;  ///< Largest value of `allocated` since the last reset.
  std::size_t reserved = 0;        ///< Bytes of all blocks, free ones too.
  std::size_t n_blocks = 0;        ///< Blocks in use.
};

/// Allocates device memory and pinned host memory in blocks that are used again, in the order of
/// streams as CUDA's allocator does.
///
/// A device block belongs to the stream that allocated it. That stream may use the block again at
/// once after its release; streams that were recorded must pass first. Released blocks are filled
/// with 0xff in stream order, pinned ones by the host. Blocks never return to the system.
/// Thread-safe.
class BlockPool {
 public:
  struct Block;

  BlockPool(const DeviceMemory& memory, Streams& streams, StreamContext& context)
      : memory_(memory), streams_(streams), context_(context) {}

  ~BlockPool();

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  BlockPool(BlockPool&&) = delete;
  BlockPool& operator=(BlockPool&&) = delete;

  /// Returns a block for the stream. Throws Error if the device's memory is exhausted.
  Block* allocate(StreamKey stream, std::size_t bytes);
  Block* allocate_pinned(std::size_t bytes);
  void release(Block* block);

  /// Returns the address that tensors have.
  [[nodiscard]] static void* address(const Block& block);

  /// The block of `pointer` is also in use on `stream`. Returns false if there is no such block.
  bool record_stream(const void* pointer, StreamKey stream);

  [[nodiscard]] bool is_pinned(const void* pointer);
  [[nodiscard]] MemoryUsage usage(int device);
  [[nodiscard]] MemoryUsage pinned_usage();
  void reset_peak(int device);

  /// Returns the number of blocks that were made.
  [[nodiscard]] std::uint64_t n_made();

  /// Later releases have no effect. The streams are about to end.
  void stop();

 private:
  // Blocks of a place have one stream, or are pinned, and have the same size.
  using Place = std::tuple<int, std::int64_t, std::size_t>;

  struct PendingBlock {
    Block* block;
    std::vector<EventPtr> events;
  };

  static constexpr int kPinned = kDeviceCount;  // In place of a device.

  Block* take(int device, std::int64_t stream, std::size_t bytes, bool& is_fresh);
  Block* make(const Place& place) UNISONO_REQUIRES(mutex_);
  Block* find(const void* pointer) UNISONO_REQUIRES(mutex_);
  void recycle(Block* block) UNISONO_EXCLUDES(mutex_);
  void recycle_passed() UNISONO_EXCLUDES(mutex_);

  const DeviceMemory& memory_;
  Streams& streams_;
  StreamContext& context_;
  unisono::Mutex mutex_;
  std::map<std::uintptr_t, Block*> blocks_ UNISONO_GUARDED_BY(mutex_);
  std::map<Place, std::vector<Block*>> free_ UNISONO_GUARDED_BY(mutex_);
  std::vector<PendingBlock> pending_ UNISONO_GUARDED_BY(mutex_);
  std::array<MemoryUsage, kDeviceCount + 1> usage_ UNISONO_GUARDED_BY(mutex_);
  bool is_stopped_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace sim
