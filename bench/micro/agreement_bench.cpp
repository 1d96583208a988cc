// Cost of the detection of ranks that called different operations. Each rank publishes a descriptor
// of its call together with data that the rank publishes or sends anyway, and compares the
// descriptors of the other ranks.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/arguments.h"
#include "unisono/comm/options.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/control_block.h"

namespace {

using namespace unisono;

transport::Descriptor all_reduce_of(const Buffer& buffer, const AllReduceOptions& options) {
  return {.kind = transport::OperationKind::kAllReduce,
          .dtype = buffer.dtype,
          .reduce = options.op.kind,
          .algorithm = options.algorithm,
          .count = buffer.count,
          .detail = comm::fingerprint_of(options.op)};
}

transport::Descriptor all_gather_of(std::span<const Buffer> blocks) {
  const comm::BlockSizes sizes = comm::sizes_of(blocks);
  return {.kind = transport::OperationKind::kAllGather,
          .dtype = blocks.front().dtype,
          .count = sizes.total,
          .detail = sizes.detail.pack()};
}

// Publishes the descriptor of `make_descriptor` in the first header of the node, and compares all
// other headers.
template <class MakeDescriptor>
void check(benchmark::State& state, MakeDescriptor make_descriptor) {
  std::vector<shm::OperationHeader> cards(static_cast<std::size_t>(state.range(0)));
  for (shm::OperationHeader& card : cards) {
    card.set_descriptor(make_descriptor());
  }
  for (auto _ : state) {
    const transport::Descriptor mine = make_descriptor();
    cards.front().set_descriptor(mine);
    bool agree = true;
    for (const shm::OperationHeader& card : std::span(cards).subspan(1)) {
      agree = agree && card.has_descriptor(mine);
    }
    benchmark::DoNotOptimize(agree);
    benchmark::ClobberMemory();
  }
}

// The argument is the number of ranks.
void all_reduce(benchmark::State& state) {
  Buffer buffer{.count = 2};
  AllReduceOptions options;
  benchmark::DoNotOptimize(buffer);
  benchmark::DoNotOptimize(options);
  check(state, [&] { return all_reduce_of(buffer, options); });
}

void all_gather(benchmark::State& state) {
  const std::vector<Buffer> blocks(static_cast<std::size_t>(state.range(0)), Buffer{.count = 2});
  check(state, [&] { return all_gather_of(blocks); });
}

// Each rank has a block of a different size.
void all_gather_uneven(benchmark::State& state) {
  std::vector<Buffer> blocks(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].count = static_cast<std::int64_t>(i);
  }
  check(state, [&] { return all_gather_of(blocks); });
}

}  // namespace

BENCHMARK(all_reduce)->Arg(2)->Arg(4)->Arg(8);
BENCHMARK(all_gather)->Arg(2)->Arg(4)->Arg(8);
BENCHMARK(all_gather_uneven)->Arg(2)->Arg(4)->Arg(8);
