#include "unisono/engine/native/collectives/coalescing.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {
namespace {

using transport::OperationKind;

// So many calls in a row that need less than this part of the memory let go of it.
constexpr int kSmallCalls = 16;
constexpr std::size_t kSmallPart = 4;

std::int64_t count_of(const std::vector<Buffer>& buffers) {
  return std::accumulate(
      buffers.begin(), buffers.end(), std::int64_t{0}, [](std::int64_t sum, const Buffer& buffer) {
        return sum + buffer.count;
      });
}

// Block `index` of `n_blocks` equal ones.
Buffer block_of(const Buffer& whole, int index, int n_blocks) {
  Buffer block = whole;
  block.count = whole.count / n_blocks;
  if (whole.data != nullptr) {
    block.data = static_cast<std::byte*>(whole.data) + index * block.n_bytes();
  }
  return block;
}

std::byte* copy(const Buffer& from, std::byte* to) {
  return std::copy_n(static_cast<const std::byte*>(from.data), from.n_bytes(), to);
}

// The blocks for or from rank `index` of all buffers, one after the other.
void join(const std::vector<Buffer>& buffers, int index, int n_blocks, const Buffer& joined) {
  auto* to = static_cast<std::byte*>(joined.data);
  for (const Buffer& buffer : buffers) {
    to = copy(block_of(buffer, index, n_blocks), to);
  }
}

void part(const Buffer& joined, const std::vector<Buffer>& buffers, int index, int n_blocks) {
  Buffer rest = joined;
  for (const Buffer& buffer : buffers) {
    const Buffer block = block_of(buffer, index, n_blocks);
    rest.count = block.count;
    copy(rest, static_cast<std::byte*>(block.data));
    rest.data = static_cast<std::byte*>(rest.data) + block.n_bytes();
  }
}

}  // namespace

Buffer Coalescing::take(const Operation& operation, std::int64_t begin, std::int64_t count) {
  const DType dtype = operation.descriptor.dtype;
  return {.data = memory_.get() + begin * static_cast<std::int64_t>(size_of(dtype)),
          .count = count,
          .dtype = dtype};
}

Operation Coalescing::pack(const Operation& operation, int world_size) {
  Operation packed = operation;
  const bool gathers = operation.descriptor.kind == OperationKind::kAllGatherCoalesced;
  const bool scatters = operation.descriptor.kind == OperationKind::kReduceScatterCoalesced;
  const std::int64_t n_in = count_of(operation.ins);
  const std::int64_t n_out = count_of(operation.outs);
  const auto element_bytes = static_cast<std::int64_t>(size_of(operation.descriptor.dtype));
  make_room(static_cast<std::size_t>((n_in + n_out) * element_bytes));
  packed.ins.clear();
  packed.outs.clear();
  packed.in = take(operation, 0, n_in);
  packed.out = take(operation, n_in, n_out);
  for (int rank = 0; (gathers || scatters) && rank < world_size; ++rank) {
    if (gathers) {
      packed.outs.push_back(block_of(packed.out, rank, world_size));
    } else {
      packed.ins.push_back(block_of(packed.in, rank, world_size));
      join(operation.ins, rank, world_size, packed.ins.back());
    }
  }
  if (!scatters) {
    join(operation.ins, 0, 1, packed.in);
  }
  return packed;
}

void Coalescing::make_room(std::size_t n_bytes) {
  n_small_calls_ = n_bytes < n_bytes_ / kSmallPart ? n_small_calls_ + 1 : 0;
  if (n_bytes <= n_bytes_ && n_small_calls_ < kSmallCalls) {
    return;
  }
  memory_.reset();  // Before there is the new one.
  n_bytes_ = 0;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(n_bytes);
  n_bytes_ = n_bytes;
  n_small_calls_ = 0;
}

void Coalescing::unpack(const Operation& packed, const Operation& operation) {
  if (packed.outs.empty()) {
    part(packed.out, operation.outs, 0, 1);
    return;
  }
  const auto world_size = static_cast<int>(packed.outs.size());
  for (int rank = 0; rank < world_size; ++rank) {
    part(packed.outs[static_cast<std::size_t>(rank)], operation.outs, rank, world_size);
  }
}

}  // namespace unisono::engine
