#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/collective/all_reduce_plan.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/engine/native/operation_run.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/tcp/exchange.h"

// The reduction of one window: what a plan says, step by step.
//
// Between two ranks, messages are posted in the order of the plan's chunks on both sides, partial
// results before results: that order is all that matches them.

namespace unisono::engine {
namespace {

using collective::AllReducePlan;
using collective::ChunkPlan;
using collective::ElementRange;

std::vector<collective::RankRange> leaves_of(collective::RankRange range) {
  std::vector<collective::RankRange> leaves;
  for (int rank = range.lo; rank < range.hi; ++rank) {
    leaves.push_back({.lo = rank, .hi = rank + 1});
  }
  return leaves;
}

// Where each partial result that a rank sends or receives lies in the scratch memory: in the order
// of the plan.
class Scratch {
 public:
  Scratch(std::vector<std::byte>& memory, std::int64_t n_bytes) : memory_(memory) {
    if (memory_.size() < static_cast<std::size_t>(n_bytes)) {
      memory_.resize(static_cast<std::size_t>(n_bytes));
    }
  }

  std::span<std::byte> take(std::int64_t n_bytes) {
    const std::span<std::byte> part =
        std::span(memory_).subspan(n_taken_, static_cast<std::size_t>(n_bytes));
    n_taken_ += static_cast<std::size_t>(n_bytes);
    return part;
  }

 private:
  std::vector<std::byte>& memory_;
  std::size_t n_taken_ = 0;
};

}  // namespace

ElementRange OperationRun::range_of(int chunk, int n_chunks, ElementRange window) const {
  constexpr std::int64_t kCacheLineBytes = 64;
  const std::int64_t granularity = std::max<std::int64_t>(kCacheLineBytes / element_bytes(), 1);
  return collective::chunk_of({.begin = 0, .end = window.count()}, n_chunks, chunk, granularity);
}

void OperationRun::reduce_window(const AllReducePlan& plan, const Window& window) {
  exchange_partials(plan, window);
  for (const ChunkPlan& chunk : plan.chunks) {
    if (chunk.combines()) {
      combine(chunk, plan.n_chunks, window);
    }
  }
  exchange_results(plan, window);
}

void OperationRun::exchange_partials(const AllReducePlan& plan, const Window& window) {
  const DType dtype = operation_.descriptor.dtype;
  const auto partial_bytes = static_cast<std::int64_t>(size_of(accumulate_dtype(dtype)));
  const auto range = [&](const ChunkPlan& chunk) {
    return range_of(chunk.chunk, plan.n_chunks, window.range);
  };
  std::int64_t n_scratch = 0;
  for (const ChunkPlan& chunk : plan.chunks) {
    std::size_t n_partials = chunk.partials.size();
    for (const collective::Partials& from : chunk.partials_from) {
      n_partials += from.subtrees.size();
    }
    n_scratch += static_cast<std::int64_t>(n_partials) * range(chunk).count() * partial_bytes;
  }
  Scratch scratch(scratch_, n_scratch);
  received_.clear();
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (const ChunkPlan& chunk : plan.chunks) {
    const ElementRange elements = range(chunk);
    for (const collective::RankRange subtree : chunk.partials) {
      const std::span<std::byte> partial = scratch.take(elements.count() * partial_bytes);
      compute_partial(subtree, elements, window, partial.data());
      for (const int to : chunk.partials_to) {
        sends.push_back({.rank = to, .data = partial});
      }
    }
    for (const collective::Partials& from : chunk.partials_from) {
      for (std::size_t index = 0; index < from.subtrees.size(); ++index) {
        const std::span<std::byte> partial = scratch.take(elements.count() * partial_bytes);
        receives.push_back({.rank = from.rank, .data = partial});
        received_.push_back(partial.data());
      }
    }
  }
  exchange_.run(sends, receives);
}

void OperationRun::compute_partial(collective::RankRange subtree,
                                   ElementRange elements,
                                   const Window& window,
                                   std::byte* partial) const {
  std::vector<kernels::ReduceInput> inputs;
  for (int rank = subtree.lo; rank < subtree.hi; ++rank) {
    const auto local_rank = static_cast<std::size_t>(topology_.local_rank_of(rank));
    inputs.push_back(
        {.data = window.in[local_rank] + elements.begin * element_bytes(), .is_partial = false});
  }
  const auto steps = collective::reduce_steps(leaves_of(subtree), subtree);
  void* const output = partial;
  kernels::reduce({.dtype = operation_.descriptor.dtype,
                   .kind = operation_.descriptor.reduce,
                   .inputs = inputs,
                   .steps = steps,
                   .outputs = std::span(&output, 1),
                   .output_is_partial = true},
                  elements.count());
}

void OperationRun::combine(const ChunkPlan& chunk, int n_chunks, const Window& window) {
  const ElementRange elements = range_of(chunk.chunk, n_chunks, window.range);
  const std::int64_t offset = elements.begin * element_bytes();
  std::vector<kernels::ReduceInput> inputs;
  for (const collective::CombineInput& input : chunk.inputs) {
    if (input.own_rank >= 0) {
      const auto local_rank = static_cast<std::size_t>(topology_.local_rank_of(input.own_rank));
      inputs.push_back({.data = window.in[local_rank] + offset, .is_partial = false});
    } else {
      // A rank combines one chunk, so the partial results it received are all this chunk's.
      std::size_t index = static_cast<std::size_t>(input.subtree);
      for (int part = 0; part < input.part; ++part) {
        index += chunk.partials_from[static_cast<std::size_t>(part)].subtrees.size();
      }
      inputs.push_back({.data = received_[index], .is_partial = true});
    }
  }
  std::vector<void*> outputs;
  for (std::byte* const out : window.out) {
    outputs.push_back(out + offset);
  }
  kernels::reduce({.dtype = operation_.descriptor.dtype,
                   .kind = operation_.descriptor.reduce,
                   .inputs = inputs,
                   .steps = chunk.steps,
                   .outputs = outputs,
                   .divisor = topology_.world_size(),
                   .is_streaming = window.is_streaming},
                  elements.count());
}

void OperationRun::exchange_results(const AllReducePlan& plan, const Window& window) {
  std::byte* const mine = window.out[static_cast<std::size_t>(self())];
  const auto bytes_of = [&](const ChunkPlan& chunk) {
    const ElementRange elements = range_of(chunk.chunk, plan.n_chunks, window.range);
    return std::span(mine + elements.begin * element_bytes(),
                     static_cast<std::size_t>(elements.count() * element_bytes()));
  };
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const int to : chunk.result_to) {
      sends.push_back({.rank = to, .data = bytes_of(chunk)});
    }
    if (chunk.result_from >= 0) {
      receives.push_back({.rank = chunk.result_from, .data = bytes_of(chunk)});
    }
  }
  exchange_.run(sends, receives);
  for (const ChunkPlan& chunk : plan.chunks) {
    if (chunk.result_from < 0) {
      continue;
    }
    const std::span<const std::byte> result = bytes_of(chunk);
    for (std::byte* const out : window.out) {
      if (out != mine) {
        std::copy(result.begin(), result.end(), out + (result.data() - mine));
      }
    }
  }
}

}  // namespace unisono::engine
