#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/collectives/collectives.h"
#include "unisono/engine/native/collectives/local_exchange.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/tcp/exchange.h"

namespace unisono::engine {
namespace {

using transport::OperationKind;

using Source = std::span<const std::byte>;
using Sink = std::span<std::byte>;

Sink bytes_of(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())};
}

// What this rank gives each rank, and takes from it; nothing where the two have no part in each
// other.
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
    // What all get is one offer.
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

// Every pair talks in both directions: who only sent would not learn that its peer called something
// else.
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

// The rank of this node that has a block after the exchange between nodes, and passes it on to its
// node: each has its own, and those of other nodes' ranks for which it is the deputy.
int holder_of(const collective::Topology& topology, int block) {
  return collective::deputy_for(topology, topology.node(), block);
}

// Each block goes to one rank of every other node, in the order of blocks: so both ends of a pair
// post their messages alike.
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
