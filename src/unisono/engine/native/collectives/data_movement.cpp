#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/collectives/collectives.h"
#include "unisono/engine/native/collectives/local_exchange.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/remote/exchange.h"

namespace unisono::engine {
namespace {

using transport::OperationKind;

// The memory is replaced by a smaller block after kSmallCalls consecutive calls that need less than
// 1/kSmallPart of the memory.
constexpr int kSmallCalls = 16;
constexpr std::size_t kSmallPart = 4;

// Returns the total number of elements.
std::int64_t count_of(const std::vector<Buffer>& buffers) {
  return std::accumulate(
      buffers.begin(), buffers.end(), std::int64_t{0}, [](std::int64_t sum, const Buffer& buffer) {
        return sum + buffer.count;
      });
}

// Returns block `index` of `n_blocks` equal blocks.
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

// Concatenates the blocks for or from rank `index` of all buffers.
void join(const std::vector<Buffer>& buffers, int index, int n_blocks, const Buffer& joined) {
  auto* to = static_cast<std::byte*>(joined.data);
  for (const Buffer& buffer : buffers) {
    to = copy(block_of(buffer, index, n_blocks), to);
  }
}

// The inverse of join().
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
  memory_.reset();  // Freed before the new memory is allocated.
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

namespace {

using transport::OperationKind;

using Source = std::span<const std::byte>;
using Sink = std::span<std::byte>;

Sink bytes_of(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())};
}

// Data that this rank gives to each rank, and takes from each rank; std::nullopt if the operation
// moves no data between the two.
struct Transfers {
  const Operation& operation;

  [[nodiscard]] std::optional<Source> gives(int rank) const {
    if (!operation.ins.empty()) {
      return bytes_of(operation.ins[static_cast<std::size_t>(rank)]);
    }
    return is_root_of(OperationKind::kGather, rank) ? std::optional(bytes_of(operation.in))
                                                    : std::nullopt;
  }

  [[nodiscard]] std::optional<Sink> takes(int rank) const {
    if (!operation.outs.empty()) {
      return bytes_of(operation.outs[static_cast<std::size_t>(rank)]);
    }
    return is_root_of(OperationKind::kScatter, rank) ? std::optional(bytes_of(operation.out))
                                                     : std::nullopt;
  }

 private:
  [[nodiscard]] bool is_root_of(OperationKind kind, int rank) const {
    return operation.descriptor.kind == kind && operation.descriptor.root == rank;
  }
};

LocalTransfers local_part(const OperationContext& context, const Transfers& transfers) {
  LocalTransfers local(context.memory, context.n_local());
  local.is_one_sided = context.operation.descriptor.kind != OperationKind::kAllToAll;
  for (const int rank : context.topology.local_ranks()) {
    const std::optional<Source> gives = transfers.gives(rank);
    const std::optional<Sink> takes = transfers.takes(rank);
    // Equal data for several ranks is a single offer.
    const bool is_as_before = gives && !local.offers.empty() &&
                              local.offers.back()[0].data() == gives->data() &&
                              local.offers.back()[0].size() == gives->size();
    if (gives && !is_as_before) {
      local.offers.emplace_back(context.memory).push_back(*gives);
    }
    local.offer_to.push_back(gives ? static_cast<int>(local.offers.size()) - 1 : -1);
    LocalTransfers::Sink& from = local.from.emplace_back(context.memory);
    if (takes) {
      from.push_back(*takes);
    }
  }
  return local;
}

// Every pair exchanges messages in both directions: a rank that only sends would not detect a
// different call of its peer.
void exchange_between_nodes(OperationContext& context, const Transfers& transfers) {
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  const int world_size = context.topology.world_size();
  for (int step = 1; step < world_size; ++step) {
    const int rank = (context.topology.rank() + step) % world_size;
    const std::optional<Source> gives = transfers.gives(rank);
    const std::optional<Sink> takes = transfers.takes(rank);
    if (context.topology.node_of(rank) != context.topology.node() && (gives || takes)) {
      const Sink into = takes.value_or(Sink());
      sends.push_back(
          {.rank = rank, .data = gives.value_or(Source()), .n_bytes_back = into.size()});
      receives.push_back({.rank = rank, .data = into});
    }
  }
  context.exchange.run(sends, receives);
}

// Returns the rank of this node that has a block after the exchange between nodes, and distributes
// the block on the node. Each rank holds its own block, and the blocks of other nodes' ranks for
// which the rank is the deputy.
int holder_of(const collective::Topology& topology, int block) {
  return collective::deputy_for(topology, topology.node(), block);
}

// Each block goes to a single rank of every other node, in the order of blocks, so that both ends
// of a pair post messages in the same order.
void exchange_blocks(OperationContext& context) {
  const collective::Topology& topology = context.topology;
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (int block = 0; block < topology.world_size(); ++block) {
    if (block == topology.rank()) {
      for (int node = 0; node < topology.n_nodes(); ++node) {
        if (node != topology.node()) {
          const int deputy = collective::deputy_for(topology, node, block);
          sends.push_back({.rank = deputy, .data = bytes_of(context.operation.in)});
          receives.push_back({.rank = deputy, .data = {}});
        }
      }
    } else if (holder_of(topology, block) == topology.rank()) {
      const Buffer& out = context.operation.outs[static_cast<std::size_t>(block)];
      receives.push_back({.rank = block, .data = bytes_of(out)});
      sends.push_back({.rank = block, .data = {}});
    }
  }
  context.exchange.run(sends, receives);
}

}  // namespace

void all_gather(OperationContext& context) {
  const Operation& operation = context.operation;
  const collective::Topology& topology = context.topology;
  const bool is_one_node = topology.n_nodes() == 1;
  LocalTransfers transfers(context.memory, context.n_local());
  transfers.offers.emplace_back(context.memory);
  for (int peer = 0; peer < context.n_local(); ++peer) {
    transfers.offer_to.push_back(0);
    transfers.from.emplace_back(context.memory);
  }
  transfers.is_ready = is_one_node;
  for (int block = 0; block < topology.world_size(); ++block) {
    const Buffer& out = operation.outs[static_cast<std::size_t>(block)];
    const int holder = holder_of(topology, block);
    const auto local_holder = static_cast<std::size_t>(topology.local_rank_of(holder));
    transfers.from[local_holder].push_back(bytes_of(out));
    if (holder == topology.rank()) {
      const bool is_own = block == topology.rank();
      transfers.offers.front().push_back(bytes_of(is_own ? operation.in : out));
    }
  }
  LocalExchange local(context, std::move(transfers));
  local.show();
  context.enter();
  if (!is_one_node) {
    exchange_blocks(context);
    context.sync();
  }
  local.take();
}

void move_blocks(OperationContext& context) {
  const Transfers transfers{.operation = context.operation};
  LocalExchange local(context, local_part(context, transfers));
  local.show();
  context.enter();
  local.take();
  if (context.topology.n_nodes() > 1) {
    exchange_between_nodes(context, transfers);
  }
}

}  // namespace unisono::engine
