#include "unisono/engine/native/collectives/window_reduction.h"

#include <algorithm>

#include "unisono/base/buffer.h"
#include "unisono/transport/remote/exchange.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {
namespace {

using collective::ChunkPlan;

// Removes and returns the first `n_bytes` of `memory`.
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

void WindowReduction::take_scratch() {
  std::int64_t n_bytes = 0;
  for (const ChunkPlan& chunk : plan_.chunks) {
    std::size_t n_partials = chunk.partials.size() + 1;
    for (const collective::Partials& from : chunk.partials_from) {
      n_partials += from.subtrees.size();
    }
    n_bytes +=
        static_cast<std::int64_t>(n_partials) * place_of(chunk).count * context_.partial_bytes();
  }
  const auto n_scratch = static_cast<std::size_t>(n_bytes);
  if (context_.topology.n_nodes() > 1 && context_.scratch.size() < n_scratch) {
    context_.scratch.resize(n_scratch);
  }
  scratch_ = context_.scratch;
}

void WindowReduction::exchange_partials() {
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
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
        receives.push_back({.rank = from.rank, .data = partial});
        received_.push_back({.data = partial.data(), .is_partial = is_partial});
      }
    }
  }
  context_.exchange.run(sends, receives);
}

bool WindowReduction::is_contribution(collective::RankRange subtree) const {
  return subtree.hi - subtree.lo == 1;
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
  return partial;
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

// The place from which this rank sends the result, or where the result arrives: the rank's own
// output if the rank is a receiver.
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
      // A rank combines a single chunk, so all received partial results belong to this chunk.
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
    for (const int to : chunk.result_to) {
      sends.push_back({.rank = to, .data = landing_of(chunk)});
    }
    if (chunk.result_from >= 0) {
      receives.push_back({.rank = chunk.result_from, .data = landing_of(chunk)});
    }
  }
  context_.exchange.run(sends, receives);
  for (const ChunkPlan& chunk : plan_.chunks) {
    if (chunk.result_from >= 0) {
      deliver(chunk);
    }
  }
}

// Copies a received result to the node's other receivers.
void WindowReduction::deliver(const ChunkPlan& chunk) {
  const std::span<std::byte> result = landing_of(chunk);
  for (std::byte* const out : outputs_of(chunk)) {
    if (out != result.data()) {
      std::copy(result.begin(), result.end(), out);
    }
  }
}

using collective::ElementRange;

bool VectorWindows::is_receiver(int local_rank) const {
  return plan_.receivers.include(context_.rank_at(local_rank), 0);
}

std::int64_t VectorWindows::n_windows() const {
  return std::max<std::int64_t>((context_.count() + segment_elements_ - 1) / segment_elements_, 1);
}

ElementRange VectorWindows::range(std::int64_t index) const {
  const std::int64_t begin = index * segment_elements_;
  return {.begin = begin, .end = std::min(begin + segment_elements_, context_.count())};
}

std::vector<ChunkPlace> VectorWindows::chunks(std::int64_t index) const {
  const ElementRange window{.begin = 0, .end = range(index).count()};
  std::vector<ChunkPlace> places;
  places.reserve(static_cast<std::size_t>(plan_.n_chunks));
  for (int chunk = 0; chunk < plan_.n_chunks; ++chunk) {
    const ElementRange elements =
        collective::chunk_of(window, plan_.n_chunks, chunk, context_.elements_per_line());
    places.push_back(
        {.in_begin = elements.begin, .out_begin = elements.begin, .count = elements.count()});
  }
  return places;
}

Window VectorWindows::symmetric(std::int64_t index) const {
  Window window{
      .chunks = chunks(index), .in = {}, .out = {}, .is_streaming = context_.is_streaming()};
  const std::int64_t offset = range(index).begin * context_.element_bytes();
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    const shm::SlotPlacement& placement = context_.header(peer).placement;
    window.in.push_back(context_.control_block.at(peer, placement.in_offset + offset));
    window.out.push_back(is_receiver(peer)
                             ? context_.control_block.at(peer, placement.out_offset + offset)
                             : nullptr);
  }
  return window;
}

// This rank's own buffer is used in place. Results for the peers overwrite the peers'
// contributions, because this rank's cache has those lines.
Window VectorWindows::staged(std::int64_t index) const {
  Window window{.chunks = chunks(index), .in = {}, .out = {}};
  const std::int64_t offset = range(index).begin * context_.element_bytes();
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    const bool is_self = peer == context_.self();
    std::byte* const staging = context_.control_block.staging_in(peer, index);
    window.in.push_back(is_self ? context_.in_bytes() + offset : staging);
    window.out.push_back(!is_receiver(peer) ? nullptr
                         : is_self          ? context_.out_bytes() + offset
                                            : staging);
  }
  return window;
}

template <class Copy>
void VectorWindows::for_chunks_of_peers(std::int64_t index, Copy copy) const {
  std::byte* const staging = context_.control_block.staging_in(context_.self(), index);
  const std::int64_t begin = range(index).begin;
  const std::vector<ChunkPlace> places = chunks(index);
  auto mine = plan_.chunks.begin();
  for (int chunk = 0; chunk < plan_.n_chunks; ++chunk) {
    if (mine != plan_.chunks.end() && mine->chunk == chunk) {
      ++mine;
      continue;
    }
    const ChunkPlace& place = places[static_cast<std::size_t>(chunk)];
    copy(staging + place.in_begin * context_.element_bytes(),
         (begin + place.in_begin) * context_.element_bytes(),
         place.count * context_.element_bytes());
  }
}

void VectorWindows::copy_in(std::int64_t index) const {
  for_chunks_of_peers(index, [&](std::byte* staging, std::int64_t offset, std::int64_t n_bytes) {
    std::copy_n(context_.in_bytes() + offset, n_bytes, staging);
  });
}

void VectorWindows::copy_out(std::int64_t index) const {
  if (!is_receiver(context_.self())) {
    return;
  }
  for_chunks_of_peers(index,
                      [&](const std::byte* staging, std::int64_t offset, std::int64_t n_bytes) {
                        std::copy_n(staging, n_bytes, context_.out_bytes() + offset);
                      });
}

std::int64_t BlockWindows::n_windows() const {
  std::int64_t largest = 1;
  for (const Buffer& block : context_.operation.ins) {
    largest = std::max(largest, block.count);
  }
  return (largest + share_elements_ - 1) / share_elements_;
}

std::int64_t BlockWindows::n_elements(int block, std::int64_t index) const {
  const std::int64_t count = context_.operation.ins[static_cast<std::size_t>(block)].count;
  return std::clamp<std::int64_t>(count - index * share_elements_, 0, share_elements_);
}

Window BlockWindows::symmetric(std::int64_t index) const {
  Window window{.chunks = {}, .in = {}, .out = {}, .is_streaming = context_.is_streaming()};
  std::int64_t begin = index * share_elements_;
  for (int block = 0; block < plan_.n_chunks; ++block) {
    window.chunks.push_back({.in_begin = begin,
                             .out_begin = index * share_elements_,
                             .count = n_elements(block, index)});
    begin += context_.operation.ins[static_cast<std::size_t>(block)].count;
  }
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    window.in.push_back(context_.control_block.at(peer, context_.header(peer).placement.in_offset));
    window.out.push_back(peer == context_.self() ? context_.out_bytes() : nullptr);
  }
  return window;
}

Window BlockWindows::staged(std::int64_t index) const {
  Window window;
  for (int block = 0; block < plan_.n_chunks; ++block) {
    window.chunks.push_back({.in_begin = block * share_elements_,
                             .out_begin = index * share_elements_,
                             .count = n_elements(block, index)});
  }
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    window.in.push_back(context_.control_block.staging_in(peer, index));
    window.out.push_back(peer == context_.self() ? context_.out_bytes() : nullptr);
  }
  return window;
}

void BlockWindows::copy_in(std::int64_t index) const {
  std::byte* const staging = context_.control_block.staging_in(context_.self(), index);
  for (int block = 0; block < plan_.n_chunks; ++block) {
    const auto* const data =
        static_cast<const std::byte*>(context_.operation.ins[static_cast<std::size_t>(block)].data);
    const std::int64_t n_bytes = n_elements(block, index) * context_.element_bytes();
    if (n_bytes > 0) {
      std::copy_n(data + index * share_elements_ * context_.element_bytes(),
                  n_bytes,
                  staging + block * share_elements_ * context_.element_bytes());
    }
  }
}

void BlockWindows::hand_back(std::int64_t index) const {
  const int block = context_.topology.rank();
  const std::int64_t begin = block * share_elements_ * context_.element_bytes();
  const std::int64_t n_bytes = n_elements(block, index) * context_.element_bytes();
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    if (peer != context_.self()) {
      shm::hand_back(context_.control_block.staging_in(peer, index) + begin,
                     static_cast<std::size_t>(n_bytes));
    }
  }
}

}  // namespace unisono::engine
