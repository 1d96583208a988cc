#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/collective/all_reduce_plan.h"
#include "unisono/engine/native/operation_run.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/shm/board.h"

namespace unisono::engine {
namespace {

using collective::AllReducePlan;
using collective::ElementRange;

// Stores past the caches pay when the whole buffer does not fit in them.
constexpr std::int64_t kStreamingBytes = 8 << 20;

}  // namespace

void OperationRun::all_reduce_one_shot(const AllReducePlan& plan, const AllReducePlan& two_shot) {
  const std::int64_t n_bytes = operation_.in.n_bytes();
  std::copy_n(in_bytes(), n_bytes, board_.slot(self(), operation_.sequence));
  enter();
  if (topology_.n_nodes() == 1) {
    reduce_slots(two_shot.chunks.front());
    return;
  }
  Window window{.range = {.begin = 0, .end = operation_.descriptor.count}, .in = {}, .out = {}};
  for (int peer = 0; peer < n_local(); ++peer) {
    window.in.push_back(board_.slot(peer, operation_.sequence));
    window.out.push_back(peer == self() ? out_bytes() : board_.staging_out(peer, 0));
  }
  reduce_window(plan, window);
  sync();
  if (topology_.local_rank() != 0) {
    std::copy_n(board_.staging_out(self(), 0), n_bytes, out_bytes());
  }
}

// Single node: every rank adds up all contributions itself.
void OperationRun::reduce_slots(const collective::ChunkPlan& chunk) {
  std::vector<kernels::ReduceInput> inputs;
  inputs.reserve(static_cast<std::size_t>(n_local()));
  for (int peer = 0; peer < n_local(); ++peer) {
    inputs.push_back({.data = board_.slot(peer, operation_.sequence), .is_partial = false});
  }
  void* const output = out_bytes();
  kernels::reduce({.dtype = operation_.descriptor.dtype,
                   .kind = operation_.descriptor.reduce,
                   .inputs = inputs,
                   .steps = chunk.steps,
                   .outputs = std::span(&output, 1),
                   .divisor = topology_.world_size()},
                  operation_.descriptor.count);
}

void OperationRun::all_reduce_two_shot(const AllReducePlan& plan) {
  enter();
  if (topology_.n_nodes() > 1) {
    all_reduce_between_nodes(plan);
  } else if (is_symmetric_on_all()) {
    all_reduce_symmetric(plan);
  } else {
    all_reduce_pipelined(plan);
  }
}

// Each rank reads its chunk of all ranks' buffers and writes the result into all of them.
void OperationRun::all_reduce_symmetric(const AllReducePlan& plan) {
  reduce_window(plan, symmetric_window({.begin = 0, .end = operation_.descriptor.count}));
  sync();
}

// Segments pass through the arenas. In step k a rank puts its segment k where its peers can read
// it, reduces its chunk of segment k - 1, and takes segment k - 2 out; so one meeting per step is
// enough, and two buffers for each direction.
void OperationRun::all_reduce_pipelined(const AllReducePlan& plan) {
  const std::int64_t segment = shm::kSegmentBytes / element_bytes();
  const std::int64_t count = operation_.descriptor.count;
  const std::int64_t n_segments = (count + segment - 1) / segment;
  const auto window = [&](std::int64_t index) {
    return staged_window({.begin = index * segment, .end = std::min((index + 1) * segment, count)},
                         index);
  };
  for (std::int64_t step = 0; step < n_segments + 2; ++step) {
    if (step < n_segments) {
      copy_in(window(step), step);
    }
    if (step >= 1 && step <= n_segments) {
      reduce_window(plan, window(step - 1));
    }
    if (step >= 2) {
      copy_out(plan, window(step - 2), step - 2);
    }
    if (step < n_segments + 1) {
      sync();
    }
  }
}

// The size of a segment must not depend on how the buffers lie in memory: that differs by node.
void OperationRun::all_reduce_between_nodes(const AllReducePlan& plan) {
  const bool is_symmetric = is_symmetric_on_all();
  const std::int64_t segment = shm::kStagingBytes / element_bytes();
  const std::int64_t count = operation_.descriptor.count;
  std::int64_t begin = 0;
  // A buffer of no elements is exchanged too: that is how a rank with another count is found.
  do {
    const ElementRange range{.begin = begin, .end = std::min(begin + segment, count)};
    if (is_symmetric) {
      reduce_window(plan, symmetric_window(range));
    } else {
      const Window window = staged_window(range, 0);
      copy_in(window, 0);
      sync();
      reduce_window(plan, window);
      sync();
      copy_out(plan, window, 0);
    }
    begin += segment;
  } while (begin < count);
  sync();
}

OperationRun::Window OperationRun::symmetric_window(ElementRange range) const {
  Window window{.range = range,
                .in = {},
                .out = {},
                .is_streaming = operation_.in.n_bytes() >= kStreamingBytes};
  const std::int64_t offset = range.begin * element_bytes();
  for (int peer = 0; peer < n_local(); ++peer) {
    const shm::Card& card = board_.card(peer, operation_.sequence);
    window.in.push_back(board_.at(peer, card.in_offset + offset));
    window.out.push_back(board_.at(peer, card.out_offset + offset));
  }
  return window;
}

// The result goes straight into this rank's own buffer, and into the arenas of its peers.
OperationRun::Window OperationRun::staged_window(ElementRange range, std::int64_t index) const {
  Window window{.range = range, .in = {}, .out = {}};
  for (int peer = 0; peer < n_local(); ++peer) {
    window.in.push_back(board_.staging_in(peer, index));
    window.out.push_back(peer == self() ? out_bytes() + range.begin * element_bytes()
                                        : board_.staging_out(peer, index));
  }
  return window;
}

void OperationRun::copy_in(const Window& window, std::int64_t index) const {
  std::copy_n(in_bytes() + window.range.begin * element_bytes(),
              window.range.count() * element_bytes(),
              board_.staging_in(self(), index));
}

// What this rank's peers wrote for it; its own chunks are in place already.
void OperationRun::copy_out(const AllReducePlan& plan,
                            const Window& window,
                            std::int64_t index) const {
  const std::byte* const staging = board_.staging_out(self(), index);
  std::byte* const out = out_bytes() + window.range.begin * element_bytes();
  auto mine = plan.chunks.begin();
  for (int chunk = 0; chunk < plan.n_chunks; ++chunk) {
    if (mine != plan.chunks.end() && mine->chunk == chunk) {
      ++mine;
      continue;
    }
    const ElementRange elements = range_of(chunk, plan.n_chunks, window.range);
    const std::int64_t offset = elements.begin * element_bytes();
    std::copy_n(staging + offset, elements.count() * element_bytes(), out + offset);
  }
}

}  // namespace unisono::engine
