#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/arguments.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/options.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {
namespace {

using transport::kUneven;
using transport::OperationKind;
using Buffers = std::span<const Buffer>;

// Sets the reduction, and throws if the engine does not support the operation.
template <class Options>
void complete(Call& call, const Arguments& arguments, const Options& options) {
  set_reduction(call.operation, options.op, options.algorithm);
  call.operation.label = options.label;
  arguments.check_operation(call.operation);
}

// Returns the checked call, for operations whose cost hides another move of the operation.
template <class Options>
Call checked(engine::Operation operation, const Arguments& arguments, const Options& options) {
  operation.label = options.label;
  arguments.check_operation(operation);
  return {.limit = arguments.limit(options.timeout), .operation = std::move(operation)};
}

DType dtype_of(Buffers buffers) {
  return buffers.empty() ? DType::kFloat32 : buffers.front().dtype;
}

// Requires as many buffers as in `like`, of the same dtype, each `factor` times as large as its
// counterpart.
void check_buffers(const Arguments& arguments,
                   Buffers buffers,
                   const char* name,
                   Buffers like,
                   std::int64_t factor) {
  if (buffers.size() != like.size()) {
    throw arguments.invalid("in and out have different numbers of buffers: " +
                            std::to_string(like.size()) + " and " + std::to_string(buffers.size()));
  }
  for (std::size_t index = 0; index < buffers.size(); ++index) {
    const ArgumentName full_name(name, index);
    arguments.check_dtype(buffers[index], full_name, dtype_of(like));
    arguments.check_count(buffers[index], full_name, factor * like[index].count);
  }
}

// Returns the `parts` that are not in place. A part is in place if it is this rank's block of the
// counterpart in `wholes`.
std::vector<Buffer> without_own_blocks(const Arguments& arguments, Buffers parts, Buffers wholes) {
  std::vector<Buffer> others;
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const auto* const own = static_cast<const std::byte*>(wholes[index].data) +
                            arguments.rank() * parts[index].n_bytes();
    if (parts[index].data != own) {
      others.push_back(parts[index]);
    }
  }
  return others;
}

// Returns each buffer once, because a buffer that is reduced in place must not be reduced again.
// Keeps all buffers without elements, whose addresses have no meaning.
std::vector<Buffer> without_repeats(Buffers buffers) {
  std::vector<Buffer> distinct;
  std::set<std::pair<const void*, std::int64_t>> known;
  for (const Buffer& buffer : buffers) {
    if (buffer.count == 0 || known.emplace(buffer.data, buffer.count).second) {
      distinct.push_back(buffer);
    }
  }
  return distinct;
}

// Coalesced operations accept no counts.
void check_blocks_are_equal(const Arguments& arguments, std::span<const std::int64_t> counts) {
  if (!counts.empty()) {
    throw arguments.invalid("blocks of different sizes can't be coalesced: counts must be empty");
  }
}

engine::Operation coalesced_operation(OperationKind kind,
                                      Buffers ins,
                                      Buffers outs,
                                      Buffers counted) {
  const BlockSizes sizes = sizes_of_coalesced(counted);
  return {.descriptor = {.kind = kind,
                         .dtype = dtype_of(ins),
                         .count = sizes.total,
                         .detail = sizes.detail.pack()},
          .ins = {ins.begin(), ins.end()},
          .outs = {outs.begin(), outs.end()}};
}

}  // namespace

Call all_reduce_call(GroupState& state,
                     const Buffer& in,
                     const Buffer& out,
                     const AllReduceOptions& options) {
  const Arguments arguments(state, "all_reduce", options.label);
  arguments.check_buffer(in, "in");
  arguments.check_dtype(out, "out", in.dtype);
  arguments.check_count(out, "out", in.count);
  arguments.check_same_or_apart(in, out);
  Call call{
      .limit = arguments.limit(options.timeout),
      .operation = {
          .descriptor = {.kind = OperationKind::kAllReduce, .dtype = in.dtype, .count = in.count},
          .in = in,
          .out = out}};
  complete(call, arguments, options);
  return call;
}

Call reduce_call(GroupState& state,
                 const Buffer& in,
                 const Buffer& out,
                 const ReduceOptions& options) {
  const Arguments arguments(state, "reduce", options.label);
  arguments.check_root(options.root);
  arguments.check_buffer(in, "in");
  const bool is_root = options.root == arguments.rank();
  if (is_root) {
    arguments.check_dtype(out, "out", in.dtype);
    arguments.check_count(out, "out", in.count);
    arguments.check_same_or_apart(in, out);
  }
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {.descriptor = {.kind = OperationKind::kReduce,
                                         .dtype = in.dtype,
                                         .root = options.root,
                                         .count = in.count},
                          .in = in,
                          .out = is_root ? out : Buffer{.dtype = in.dtype}}};
  complete(call, arguments, options);
  return call;
}

Call reduce_scatter_call(GroupState& state,
                         const Blocks& in,
                         const Buffer& out,
                         const ReduceScatterOptions& options) {
  const Arguments arguments(state, "reduce_scatter", options.label);
  arguments.check_buffer(out, "out");
  std::vector<Buffer> ins = arguments.blocks_of(in, "in", out.dtype, options.counts);
  const int rank = arguments.rank();
  arguments.check_count(out, "out", ins[static_cast<std::size_t>(rank)].count);
  arguments.check_apart(ins, std::span(&out, 1), rank, 0);
  const BlockSizes sizes = sizes_of(ins);
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {.descriptor = {.kind = OperationKind::kReduceScatter,
                                         .dtype = out.dtype,
                                         .count = sizes.total,
                                         .detail = sizes.detail.pack()},
                          .in = in.is_list() ? Buffer() : kept(in, *in.whole),
                          .out = out,
                          .ins = std::move(ins)}};
  complete(call, arguments, options);
  return call;
}

Call broadcast_call(GroupState& state, const Buffer& buffer, const BroadcastOptions& options) {
  const Arguments arguments(state, "broadcast", options.label);
  arguments.check_buffer(buffer, "the buffer");
  arguments.check_root(options.root);
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {.descriptor = {.kind = OperationKind::kBroadcast,
                                         .dtype = buffer.dtype,
                                         .root = options.root,
                                         .count = buffer.count},
                          .in = buffer,
                          .out = buffer,
                          .label = options.label}};
  arguments.check_operation(call.operation);
  return call;
}

Call all_gather_call(GroupState& state,
                     const Buffer& in,
                     const Blocks& out,
                     const AllGatherOptions& options) {
  const Arguments arguments(state, "all_gather", options.label);
  arguments.check_buffer(in, "in");
  std::vector<Buffer> outs = arguments.blocks_of(out, "out", in.dtype, options.counts);
  const int rank = arguments.rank();
  arguments.check_count(in, "in", outs[static_cast<std::size_t>(rank)].count);
  arguments.check_apart(std::span(&in, 1), outs, 0, rank);
  const BlockSizes sizes = sizes_of(outs);
  return checked({.descriptor = {.kind = OperationKind::kAllGather,
                                 .dtype = in.dtype,
                                 .count = sizes.total,
                                 .detail = sizes.detail.pack()},
                  .in = in,
                  .outs = std::move(outs)},
                 arguments,
                 options);
}

Call rooted_call(GroupState& state,
                 OperationKind kind,
                 const Buffer& own,
                 const Blocks& blocks,
                 const RootedOptions& options) {
  const bool is_gather = kind == OperationKind::kGather;
  const Arguments arguments(state, is_gather ? "gather" : "scatter", options.label);
  const char* const own_name = is_gather ? "in" : "out";
  const char* const blocks_name = is_gather ? "out" : "in";
  const auto rank = static_cast<std::size_t>(arguments.rank());
  arguments.check_root(options.root);
  arguments.check_buffer(own, own_name);
  std::vector<Buffer> list;  // Empty except on the root.
  if (arguments.rank() == options.root) {
    list = arguments.blocks_of(blocks, blocks_name, own.dtype, options.counts);
    arguments.check_count(own, own_name, list[rank].count);
    const std::span one(&own, 1);
    if (is_gather) {
      arguments.check_apart(one, list, 0, arguments.rank());
    } else {
      arguments.check_apart(list, one, arguments.rank(), 0);
    }
  } else {
    arguments.check_absent(blocks, blocks_name);
  }
  // With counts, all ranks have all sizes. Without counts, all blocks are as large as this rank's
  // block, except in a list.
  BlockSizes sizes{.total = blocks.is_list() ? kUneven : own.count};
  if (!options.counts.empty()) {
    arguments.check_counts(options.counts);
    arguments.check_count(own, own_name, options.counts[rank]);
    sizes = sizes_of(options.counts);
  }
  engine::Operation operation{.descriptor = {.kind = kind,
                                             .dtype = own.dtype,
                                             .root = options.root,
                                             .count = sizes.total,
                                             .detail = sizes.detail.pack()}};
  (is_gather ? operation.in : operation.out) = own;
  (is_gather ? operation.outs : operation.ins) = std::move(list);
  return checked(std::move(operation), arguments, options);
}

Call all_to_all_call(GroupState& state,
                     const Blocks& in,
                     const Blocks& out,
                     const AllToAllOptions& options) {
  const Arguments arguments(state, "all_to_all", options.label);
  if (in.is_list() != out.is_list()) {
    throw arguments.invalid(
        "one of in and out is a list, the other is not; pass two lists or two buffers");
  }
  DType dtype = dtype_of(in.list);
  std::int64_t count = kUneven;
  if (!in.is_list()) {
    dtype = in.whole->dtype;
    arguments.check_buffer(*in.whole, "in");
    arguments.check_dtype(*out.whole, "out", dtype);
    if (options.in_counts.empty() != options.out_counts.empty()) {
      throw arguments.invalid("pass both in_counts and out_counts, or neither");
    }
    if (options.in_counts.empty()) {
      arguments.check_count(*out.whole, "out", in.whole->count);
      count = in.whole->count / arguments.world_size();
    }
  }
  std::vector<Buffer> ins = arguments.blocks_of(in, "in", dtype, options.in_counts);
  std::vector<Buffer> outs = arguments.blocks_of(out, "out", dtype, options.out_counts);
  const auto rank = static_cast<std::size_t>(arguments.rank());
  arguments.check_count(outs[rank], "the own block of out", ins[rank].count);
  arguments.check_apart(ins, outs, -1, -1);
  return checked({.descriptor = {.kind = OperationKind::kAllToAll, .dtype = dtype, .count = count},
                  .ins = std::move(ins),
                  .outs = std::move(outs)},
                 arguments,
                 options);
}

Call all_reduce_coalesced_call(GroupState& state,
                               Buffers buffers,
                               const AllReduceOptions& options) {
  const Arguments arguments(state, "all_reduce_coalesced", options.label);
  check_buffers(arguments, buffers, "buffers", buffers, 1);
  const std::vector<Buffer> distinct = without_repeats(buffers);
  arguments.check_apart({}, distinct, -1, -1);
  engine::Operation operation =
      coalesced_operation(OperationKind::kAllReduceCoalesced, distinct, distinct, distinct);
  set_reduction(operation, options.op, options.algorithm);
  return checked(std::move(operation), arguments, options);
}

Call all_gather_coalesced_call(GroupState& state,
                               Buffers ins,
                               Buffers outs,
                               const AllGatherOptions& options) {
  const Arguments arguments(state, "all_gather_coalesced", options.label);
  check_blocks_are_equal(arguments, options.counts);
  check_buffers(arguments, ins, "in", ins, 1);
  check_buffers(arguments, outs, "out", ins, arguments.world_size());
  arguments.check_apart(without_own_blocks(arguments, ins, outs), outs, -1, -1);
  return checked(
      coalesced_operation(OperationKind::kAllGatherCoalesced, ins, outs, outs), arguments, options);
}

Call reduce_scatter_coalesced_call(GroupState& state,
                                   Buffers ins,
                                   Buffers outs,
                                   const ReduceScatterOptions& options) {
  const Arguments arguments(state, "reduce_scatter_coalesced", options.label);
  check_blocks_are_equal(arguments, options.counts);
  check_buffers(arguments, outs, "out", outs, 1);
  check_buffers(arguments, ins, "in", outs, arguments.world_size());
  arguments.check_apart(ins, without_own_blocks(arguments, outs, ins), -1, -1);
  engine::Operation operation =
      coalesced_operation(OperationKind::kReduceScatterCoalesced, ins, outs, ins);
  set_reduction(operation, options.op, options.algorithm);
  return checked(std::move(operation), arguments, options);
}

Call barrier_call(GroupState& state, OperationKind kind, const BarrierOptions& options) {
  const char* const name = kind == OperationKind::kBarrier ? "barrier" : "monitored_barrier";
  const Arguments arguments(state, name, options.label);
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {.descriptor = {.kind = kind}, .label = options.label}};
  arguments.check_operation(call.operation);
  return call;
}

}  // namespace unisono::comm
