#include "unisono/engine/native/collectives/reduction_windows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/transport/shm/cache_line.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

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
    const shm::Placement& placement = context_.header(peer).placement;
    window.in.push_back(context_.control_block.at(peer, placement.in_offset + offset));
    window.out.push_back(is_receiver(peer)
                             ? context_.control_block.at(peer, placement.out_offset + offset)
                             : nullptr);
  }
  return window;
}

// This rank's own buffer is used where it lies. Results for its peers take the place of what they
// gave: those lines are in this rank's cache.
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
