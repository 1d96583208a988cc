#include "sim_device/block_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

namespace sim {
namespace {

constexpr std::size_t kSmallestBlock = 512;
constexpr std::size_t kLargeStep = std::size_t{1} << 20;

// Small blocks have sizes of powers of two, large ones multiples of 1 MiB.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= kLargeStep) {
    return std::max(kSmallestBlock, std::bit_ceil(bytes));
  }
  return (bytes + kLargeStep - 1) / kLargeStep * kLargeStep;
}

void* pointer_of(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): an address range
}

}  // namespace

struct BlockPool::Block {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  StreamKey owner;  // The device is kPinned for host memory.
  std::set<StreamKey> used_on;
};

BlockPool::~BlockPool() {
  const unisono::MutexLock lock(mutex_);
  for (const auto& [begin, block] : blocks_) {
    if (block->owner.device == kPinned) {
      std::free(pointer_of(begin));
    }
    delete block;
  }
}

void* BlockPool::address(const Block& block) {
  return pointer_of(block.begin);
}

BlockPool::Block* BlockPool::allocate(StreamKey stream, std::size_t bytes) {
  bool is_fresh = false;
  Block* block = take(stream.device, stream.id, bytes, is_fresh);
  if (is_fresh && context_.options.poison) {
    void* alias = memory_.alias(address(*block));
    const Access access{block->begin, block->begin + block->size, true, "the allocation of memory"};
    streams_.get(stream).launch([alias, size = block->size] { std::memset(alias, 0xff, size); },
                                {&access, 1});
  }
  return block;
}

BlockPool::Block* BlockPool::allocate_pinned(std::size_t bytes) {
  bool is_fresh = false;
  Block* block = take(kPinned, 0, bytes, is_fresh);
  if (is_fresh && context_.options.poison) {
    std::memset(address(*block), 0xff, block->size);
  }
  return block;
}

BlockPool::Block* BlockPool::take(int device,
                                  std::int64_t stream,
                                  std::size_t bytes,
                                  bool& is_fresh) {
  recycle_passed();
  const Place place{device, stream, rounded(bytes)};
  const unisono::MutexLock lock(mutex_);
  std::vector<Block*>& free = free_[place];
  is_fresh = free.empty();
  if (is_fresh) {
    free.push_back(make(place));
  }
  Block* block = free.back();
  free.pop_back();
  context_.checker.reuse_block(block->begin);
  MemoryUsage& usage = usage_[static_cast<std::size_t>(device)];
  usage.allocated += block->size;
  usage.peak_allocated = std::max(usage.peak_allocated, usage.allocated);
  ++usage.n_blocks;
  return block;
}

BlockPool::Block* BlockPool::make(const Place& place) {
  const auto [device, stream, size] = place;
  MemoryUsage& usage = usage_[static_cast<std::size_t>(device)];
  std::uintptr_t begin = 0;
  if (device == kPinned) {
    begin = reinterpret_cast<std::uintptr_t>(std::aligned_alloc(kSmallestBlock, size));
  } else if (usage.reserved + size <= kBytesPerDevice) {
    begin = reinterpret_cast<std::uintptr_t>(memory_.begin(device)) + usage.reserved;
  }
  if (begin == 0) {
    throw Error("sim: out of memory: " + std::to_string(size) + " bytes were requested, " +
                std::to_string(usage.allocated) + " of " + std::to_string(usage.reserved) +
                " reserved bytes are in use");
  }
  usage.reserved += size;
  auto* block = new Block{begin, size, {device, stream}, {}};
  blocks_[begin] = block;
  context_.checker.add_block(begin, size);
  return block;
}

BlockPool::Block* BlockPool::find(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) {
    return nullptr;
  }
  Block* block = std::prev(next)->second;
  return address < block->begin + block->size ? block : nullptr;
}

void BlockPool::release(Block* block) {
  std::set<StreamKey> others;
  {
    const unisono::MutexLock lock(mutex_);
    if (is_stopped_ || is_forked_child()) {
      return;
    }
    MemoryUsage& usage = usage_[static_cast<std::size_t>(block->owner.device)];
    usage.allocated -= block->size;
    --usage.n_blocks;
    others.swap(block->used_on);
    others.erase(block->owner);
  }
  if (others.empty()) {
    recycle(block);
    return;
  }
  PendingBlock pending{block, {}};
  for (const StreamKey& key : others) {
    pending.events.push_back(streams_.get(key).record());
  }
  const unisono::MutexLock lock(mutex_);
  pending_.push_back(std::move(pending));
}

void BlockPool::recycle_passed() {
  std::vector<PendingBlock> passed;
  {
    const unisono::MutexLock lock(mutex_);
    const auto is_waiting = [](const PendingBlock& pending) {
      return !std::ranges::all_of(pending.events, [](const EventPtr& e) { return e->is_done(); });
    };
    const auto first = std::stable_partition(pending_.begin(), pending_.end(), is_waiting);
    passed.assign(std::make_move_iterator(first), std::make_move_iterator(pending_.end()));
    pending_.erase(first, pending_.end());
  }
  for (const PendingBlock& pending : passed) {
    for (const EventPtr& event : pending.events) {
      context_.checker.forget(pending.block->begin, event->clock());
    }
    recycle(pending.block);
  }
}

void BlockPool::recycle(Block* block) {
  if (block->owner.device == kPinned) {
    if (context_.options.poison) {
      std::memset(address(*block), 0xff, block->size);
    }
    context_.checker.release_host_block(block->begin);
  } else {
    streams_.get(block->owner).release(block->begin, block->size, memory_.alias(address(*block)));
  }
  const unisono::MutexLock lock(mutex_);
  free_[{block->owner.device, block->owner.id, block->size}].push_back(block);
}

bool BlockPool::record_stream(const void* pointer, StreamKey stream) {
  const unisono::MutexLock lock(mutex_);
  Block* block = find(pointer);
  if (block == nullptr) {
    return false;
  }
  block->used_on.insert(stream);
  return true;
}

bool BlockPool::is_pinned(const void* pointer) {
  const unisono::MutexLock lock(mutex_);
  const Block* block = find(pointer);
  return block != nullptr && block->owner.device == kPinned;
}

MemoryUsage BlockPool::usage(int device) {
  const unisono::MutexLock lock(mutex_);
  return usage_[static_cast<std::size_t>(device)];
}

MemoryUsage BlockPool::pinned_usage() {
  return usage(kPinned);
}

void BlockPool::reset_peak(int device) {
  const unisono::MutexLock lock(mutex_);
  MemoryUsage& usage = usage_[static_cast<std::size_t>(device)];
  usage.peak_allocated = usage.allocated;
}

std::uint64_t BlockPool::n_made() {
  const unisono::MutexLock lock(mutex_);
  return blocks_.size();
}

void BlockPool::stop() {
  const unisono::MutexLock lock(mutex_);
  is_stopped_ = true;
}

}  // namespace sim
