#include "unisono/engine/mpi/blocks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "unisono/base/buffer.h"

namespace unisono::engine::mpi {
namespace {

// Where the first block with elements begins, if the others follow it; null if they don't, or if
// there is none.
std::byte* begin_of_row(std::span<const Buffer> blocks) {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  for (const Buffer& block : blocks) {
    auto* const data = static_cast<std::byte*>(block.data);
    if (block.count == 0) {
      continue;
    }
    if (begin != nullptr && data != end) {
      return nullptr;
    }
    begin = begin == nullptr ? data : begin;
    end = data + block.n_bytes();
  }
  return begin;
}

}  // namespace

std::byte* Scratch::take(std::int64_t n_bytes) {
  if (n_bytes > n_bytes_) {
    memory_ = nullptr;
    n_bytes_ = 0;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(n_bytes));
    n_bytes_ = n_bytes;
  }
  return memory_.get();
}

void Blocks::set(std::span<const Buffer> blocks, bool is_apart) {
  blocks_ = blocks;
  counts_.clear();
  offsets_.clear();
  std::int64_t n_elems = 0;
  std::int64_t n_bytes = 0;
  for (const Buffer& block : blocks) {
    counts_.push_back(static_cast<int>(block.count));
    offsets_.push_back(static_cast<int>(n_elems));
    n_elems += block.count;
    n_bytes += block.n_bytes();
  }
  data_ = is_apart ? nullptr : begin_of_row(blocks);
  is_copy_ = data_ == nullptr && n_bytes > 0;
  if (is_copy_) {
    data_ = scratch_.take(n_bytes);
  }
}

void Blocks::set_source(std::span<const Buffer> blocks) {
  set(blocks, false);
  if (is_copy_) {
    std::byte* to = data_;
    for (const Buffer& block : blocks_) {
      to = std::copy_n(static_cast<const std::byte*>(block.data), block.n_bytes(), to);
    }
  }
}

void Blocks::set_target(std::span<const Buffer> blocks, bool is_apart) {
  set(blocks, is_apart);
}

void Blocks::deliver() const {
  if (is_copy_) {
    const std::byte* from = data_;
    for (const Buffer& block : blocks_) {
      std::copy_n(from, block.n_bytes(), static_cast<std::byte*>(block.data));
      from += block.n_bytes();
    }
  }
}

bool are_equal(std::span<const Buffer> blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [&](const Buffer& block) {
    return block.count == blocks.front().count;
  });
}

}  // namespace unisono::engine::mpi
