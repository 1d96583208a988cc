#include "unisono/engine/native/collectives/window_reduction.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/kernels/compress.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/tcp/exchange.h"

namespace unisono::engine {
namespace {

using collective::ChunkPlan;

std::span<std::byte> take_front(std::span<std::byte>& memory, std::int64_t n_bytes) {
  const auto size = static_cast<std::size_t>(n_bytes);
  const std::span<std::byte> front = memory.first(size);
  memory = memory.subspan(size);
  return front;
}

std::int64_t n_floats(std::span<const std::byte> elements) {
  return static_cast<std::int64_t>(elements.size() / sizeof(float));
}

}  // namespace

void WindowReduction::run() {
  take_scratch();
  exchange_partials();
  for (const ChunkPlan& chunk : plan_.chunks) {
    if (chunk.combines()) {
      combine(chunk);
    }
  }
  exchange_results();
}

bool WindowReduction::is_compressed(DType dtype) const {
  return compression_ != kernels::Compression::kNone && dtype == DType::kFloat32;
}

std::span<const std::byte> WindowReduction::pack(std::span<const std::byte> elements, DType dtype) {
  if (!is_compressed(dtype)) {
    return elements;
  }
  const std::int64_t count = n_floats(elements);
  const std::span<std::byte> packed =
      take_front(packed_, kernels::compressed_bytes(compression_, count));
  kernels::compress(compression_, elements.data(), count, packed.data());
  return packed;
}

std::span<std::byte> WindowReduction::room_for(std::span<std::byte> elements, DType dtype) {
  return is_compressed(dtype)
             ? take_front(packed_, kernels::compressed_bytes(compression_, n_floats(elements)))
             : elements;
}

void WindowReduction::unpack(std::span<const std::byte> packed,
                             std::span<std::byte> elements) const {
  if (packed.data() != elements.data()) {
    kernels::decompress(compression_, packed.data(), n_floats(elements), elements.data());
  }
}

void WindowReduction::take_scratch() {
  std::int64_t n_bytes = 0;
  std::int64_t n_packed = 0;
  for (const ChunkPlan& chunk : plan_.chunks) {
    std::size_t n_partials = chunk.partials.size() + 1;
    for (const collective::Partials& from : chunk.partials_from) {
      n_partials += from.subtrees.size();
    }
    const auto n_parts = static_cast<std::int64_t>(n_partials);
    const std::int64_t count = place_of(chunk).count;
    n_bytes += n_parts * count * context_.partial_bytes();
    if (compression_ != kernels::Compression::kNone) {
      n_packed += n_parts * kernels::compressed_bytes(compression_, count);
    }
  }
  const bool is_used = context_.topology.n_nodes() > 1;
  const auto n_scratch = static_cast<std::size_t>(n_bytes + n_packed);
  if (is_used && context_.scratch.size() < n_scratch) {
    context_.scratch.resize(n_scratch);
  }
  scratch_ = context_.scratch;
  packed_ = is_used ? scratch_.subspan(static_cast<std::size_t>(n_bytes)) : scratch_;
}

void WindowReduction::exchange_partials() {
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  std::vector<std::span<std::byte>> partials;
  for (const ChunkPlan& chunk : plan_.chunks) {
    const ChunkPlace& place = place_of(chunk);
    for (const collective::RankRange subtree : chunk.partials) {
      const std::span<const std::byte> partial = partial_of(subtree, place);
      for (const int to : chunk.partials_to) {
        sends.push_back({.rank = to, .data = partial});
      }
    }
    for (const collective::Partials& from : chunk.partials_from) {
      for (const collective::RankRange subtree : from.subtrees) {
        std::span<std::byte> partial = take_front(scratch_, place.count * context_.partial_bytes());
        const bool is_partial = !is_contribution(subtree);
        if (!is_partial) {
          partial = partial.first(static_cast<std::size_t>(place.count * context_.element_bytes()));
        }
        receives.push_back(
            {.rank = from.rank,
             .data = is_partial ? room_for(partial, context_.partial_type()) : partial});
        partials.push_back(partial);
        received_.push_back({.data = partial.data(), .is_partial = is_partial});
      }
    }
  }
  context_.exchange.run(sends, receives);
  for (std::size_t index = 0; index < partials.size(); ++index) {
    unpack(receives[index].data, partials[index]);
  }
}

bool WindowReduction::is_contribution(collective::RankRange subtree) const {
  return subtree.hi - subtree.lo == 1 && compression_ == kernels::Compression::kNone;
}

const std::byte* WindowReduction::contribution(int rank, const ChunkPlace& place) const {
  const auto local_rank = static_cast<std::size_t>(context_.topology.local_rank_of(rank));
  return window_.in[local_rank] + place.in_begin * context_.element_bytes();
}

std::span<const std::byte> WindowReduction::partial_of(collective::RankRange subtree,
                                                       const ChunkPlace& place) {
  if (is_contribution(subtree)) {
    return {contribution(subtree.lo, place),
            static_cast<std::size_t>(place.count * context_.element_bytes())};
  }
  const std::span<std::byte> partial = take_front(scratch_, place.count * context_.partial_bytes());
  compute_partial(subtree, place, partial.data());
  return pack(partial, context_.partial_type());
}

void WindowReduction::compute_partial(collective::RankRange subtree,
                                      const ChunkPlace& place,
                                      std::byte* partial) {
  std::vector<kernels::ReduceInput> inputs;
  for (int rank = subtree.lo; rank < subtree.hi; ++rank) {
    inputs.push_back({.data = contribution(rank, place), .is_partial = false});
  }
  const auto steps = collective::reduce_steps(collective::leaves_of(subtree), subtree);
  void* const output = partial;
  kernels::ReduceTask task = context_.reduce_task(inputs, steps, std::span(&output, 1));
  task.output_is_partial = true;
  kernels::reduce(task, place.count);
}

std::vector<std::byte*> WindowReduction::outputs_of(const ChunkPlan& chunk) const {
  std::vector<std::byte*> outputs;
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    std::byte* const out = window_.out[static_cast<std::size_t>(peer)];
    if (out != nullptr && plan_.receivers.include(context_.rank_at(peer), chunk.chunk)) {
      outputs.push_back(out + place_of(chunk).out_begin * context_.element_bytes());
    }
  }
  return outputs;
}

// Where this rank sends the result from, or receives it: its own memory if it is a receiver.
std::span<std::byte> WindowReduction::landing_of(const ChunkPlan& chunk) {
  const std::int64_t n_bytes = place_of(chunk).count * context_.element_bytes();
  std::byte* const mine = window_.out[static_cast<std::size_t>(context_.self())];
  if (mine != nullptr && plan_.receivers.include(context_.topology.rank(), chunk.chunk)) {
    return {mine + place_of(chunk).out_begin * context_.element_bytes(),
            static_cast<std::size_t>(n_bytes)};
  }
  const std::vector<std::byte*> outputs = outputs_of(chunk);
  return outputs.empty() ? scratch_.first(static_cast<std::size_t>(n_bytes))
                         : std::span(outputs.front(), static_cast<std::size_t>(n_bytes));
}

void WindowReduction::combine(const ChunkPlan& chunk) {
  const ChunkPlace& place = place_of(chunk);
  std::vector<kernels::ReduceInput> inputs;
  for (const collective::CombineInput& input : chunk.inputs) {
    if (input.own_rank >= 0) {
      inputs.push_back({.data = contribution(input.own_rank, place), .is_partial = false});
    } else {
      // A rank combines one chunk, so the partial results it received are all this chunk's.
      auto index = static_cast<std::size_t>(input.subtree);
      for (int part = 0; part < input.part; ++part) {
        index += chunk.partials_from[static_cast<std::size_t>(part)].subtrees.size();
      }
      inputs.push_back(received_[index]);
    }
  }
  const std::vector<std::byte*> receivers = outputs_of(chunk);
  std::vector<void*> outputs(receivers.begin(), receivers.end());
  if (outputs.empty()) {
    outputs.push_back(landing_of(chunk).data());
  }
  kernels::ReduceTask task = context_.reduce_task(inputs, chunk.steps, outputs);
  task.is_streaming = window_.is_streaming;
  kernels::reduce(task, place.count);
}

void WindowReduction::exchange_results() {
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (const ChunkPlan& chunk : plan_.chunks) {
    const DType dtype = context_.operation.descriptor.dtype;
    if (!chunk.result_to.empty()) {
      const std::span<const std::byte> packed = pack(landing_of(chunk), dtype);
      for (const int to : chunk.result_to) {
        sends.push_back({.rank = to, .data = packed});
      }
      // This rank has the result, but is to have what the others get.
      if (is_compressed(dtype)) {
        deliver(chunk, packed);
      }
    }
    if (chunk.result_from >= 0) {
      receives.push_back({.rank = chunk.result_from, .data = room_for(landing_of(chunk), dtype)});
    }
  }
  context_.exchange.run(sends, receives);
  std::size_t n_delivered = 0;
  for (const ChunkPlan& chunk : plan_.chunks) {
    if (chunk.result_from >= 0) {
      deliver(chunk, receives[n_delivered++].data);
    }
  }
}

// To the ranks of this node.
void WindowReduction::deliver(const ChunkPlan& chunk, std::span<const std::byte> packed) {
  const std::span<std::byte> result = landing_of(chunk);
  unpack(packed, result);
  for (std::byte* const out : outputs_of(chunk)) {
    if (out != result.data()) {
      std::copy(result.begin(), result.end(), out);
    }
  }
}

}  // namespace unisono::engine
