#include "unisono/engine/native/window_reduction.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/reduce_plan.h"
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

std::int64_t WindowReduction::partial_bytes() const {
  const transport::Descriptor& descriptor = context_.operation.descriptor;
  return static_cast<std::int64_t>(size_of(partial_dtype(descriptor.dtype, descriptor.reduce)));
}

void WindowReduction::take_scratch() {
  std::int64_t n_bytes = 0;
  for (const ChunkPlan& chunk : plan_.chunks) {
    std::size_t n_partials = chunk.partials.size() + 1;
    for (const collective::Partials& from : chunk.partials_from) {
      n_partials += from.subtrees.size();
    }
    n_bytes += static_cast<std::int64_t>(n_partials) * place_of(chunk).count * partial_bytes();
  }
  const bool is_used = context_.topology.n_nodes() > 1;
  if (is_used && context_.scratch.size() < static_cast<std::size_t>(n_bytes)) {
    context_.scratch.resize(static_cast<std::size_t>(n_bytes));
  }
  scratch_ = context_.scratch;
}

void WindowReduction::exchange_partials() {
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (const ChunkPlan& chunk : plan_.chunks) {
    const ChunkPlace& place = place_of(chunk);
    for (const collective::RankRange subtree : chunk.partials) {
      const std::span<std::byte> partial = take_front(scratch_, place.count * partial_bytes());
      compute_partial(subtree, place, partial.data());
      for (const int to : chunk.partials_to) {
        sends.push_back({.rank = to, .data = partial});
      }
    }
    for (const collective::Partials& from : chunk.partials_from) {
      for (std::size_t index = 0; index < from.subtrees.size(); ++index) {
        const std::span<std::byte> partial = take_front(scratch_, place.count * partial_bytes());
        receives.push_back({.rank = from.rank, .data = partial});
        received_.push_back(partial.data());
      }
    }
  }
  context_.exchange.run(sends, receives);
}

void WindowReduction::compute_partial(collective::RankRange subtree,
                                      const ChunkPlace& place,
                                      std::byte* partial) {
  std::vector<kernels::ReduceInput> inputs;
  for (int rank = subtree.lo; rank < subtree.hi; ++rank) {
    const auto local_rank = static_cast<std::size_t>(context_.topology.local_rank_of(rank));
    inputs.push_back({.data = window_.in[local_rank] + place.in_begin * context_.element_bytes(),
                      .is_partial = false});
  }
  const auto steps = collective::reduce_steps(collective::leaves_of(subtree), subtree);
  void* const output = partial;
  kernels::reduce({.dtype = context_.operation.descriptor.dtype,
                   .kind = context_.operation.descriptor.reduce,
                   .inputs = inputs,
                   .steps = steps,
                   .outputs = std::span(&output, 1),
                   .output_is_partial = true,
                   .factor = context_.operation.factor,
                   .user = context_.operation.user.get()},
                  place.count);
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
      const auto local_rank =
          static_cast<std::size_t>(context_.topology.local_rank_of(input.own_rank));
      inputs.push_back({.data = window_.in[local_rank] + place.in_begin * context_.element_bytes(),
                        .is_partial = false});
    } else {
      // A rank combines one chunk, so the partial results it received are all this chunk's.
      auto index = static_cast<std::size_t>(input.subtree);
      for (int part = 0; part < input.part; ++part) {
        index += chunk.partials_from[static_cast<std::size_t>(part)].subtrees.size();
      }
      inputs.push_back({.data = received_[index], .is_partial = true});
    }
  }
  const std::vector<std::byte*> receivers = outputs_of(chunk);
  std::vector<void*> outputs(receivers.begin(), receivers.end());
  if (outputs.empty()) {
    outputs.push_back(landing_of(chunk).data());
  }
  kernels::reduce({.dtype = context_.operation.descriptor.dtype,
                   .kind = context_.operation.descriptor.reduce,
                   .inputs = inputs,
                   .steps = chunk.steps,
                   .outputs = outputs,
                   .divisor = context_.topology.world_size(),
                   .factor = context_.operation.factor,
                   .user = context_.operation.user.get(),
                   .is_streaming = window_.is_streaming},
                  place.count);
}

void WindowReduction::exchange_results() {
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (const ChunkPlan& chunk : plan_.chunks) {
    for (const int to : chunk.result_to) {
      sends.push_back({.rank = to, .data = landing_of(chunk)});
    }
    if (chunk.result_from >= 0) {
      receives.push_back({.rank = chunk.result_from, .data = landing_of(chunk)});
    }
  }
  context_.exchange.run(sends, receives);
  for (const ChunkPlan& chunk : plan_.chunks) {
    if (chunk.result_from < 0) {
      continue;
    }
    const std::span<const std::byte> result = landing_of(chunk);
    for (std::byte* const out : outputs_of(chunk)) {
      if (out != result.data()) {
        std::copy(result.begin(), result.end(), out);
      }
    }
  }
}

}  // namespace unisono::engine
