#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/agreement.h"
#include "unisono/comm/arguments.h"
#include "unisono/comm/blocks.h"
#include "unisono/comm/call.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/options.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {
namespace {

using transport::kUneven;
using transport::OperationKind;

// The agreed size of a rooted operation's blocks. With counts all ranks know all sizes; without,
// this rank's block is as large as any, unless they are in a list.
BlockSizes rooted_sizes(const Arguments& arguments,
                        const Buffer& own,
                        const char* name,
                        const Blocks& blocks,
                        const RootedOptions& options) {
  if (options.counts.empty()) {
    return {.total = blocks.is_list() ? kUneven : own.count};
  }
  arguments.check_counts(options.counts);
  arguments.check_count(own, name, options.counts[static_cast<std::size_t>(arguments.rank())]);
  return sizes_of(options.counts);
}

// The root's blocks, none on other ranks. What the root passes must fit what every rank passes.
std::vector<Buffer> rooted_blocks(const Arguments& arguments,
                                  const Blocks& blocks,
                                  const char* name,
                                  DType dtype,
                                  const RootedOptions& options) {
  if (arguments.rank() == options.root) {
    return arguments.blocks_of(blocks, name, dtype, options.counts);
  }
  arguments.check_absent(blocks, name);
  return {};
}

void check_root_block(const Arguments& arguments,
                      const std::vector<Buffer>& blocks,
                      const Buffer& own,
                      const char* name) {
  const Buffer& block = blocks[static_cast<std::size_t>(arguments.rank())];
  arguments.check_count(own, name, block.count);
}

Call barrier_call(const Arguments& arguments, OperationKind kind, const BarrierOptions& options) {
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {.descriptor = {.kind = kind}, .label = options.label}};
  arguments.check_operation(call.operation);
  return call;
}

}  // namespace

Call broadcast_call(Membership& membership, const Buffer& buffer, const BroadcastOptions& options) {
  const Arguments arguments(membership, "broadcast", options.label);
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

Call all_gather_call(Membership& membership,
                     const Buffer& in,
                     const Blocks& out,
                     const AllGatherOptions& options) {
  const Arguments arguments(membership, "all_gather", options.label);
  arguments.check_buffer(in, "in");
  std::vector<Buffer> outs = arguments.blocks_of(out, "out", in.dtype, options.counts);
  const int rank = arguments.rank();
  arguments.check_count(in, "in", outs[static_cast<std::size_t>(rank)].count);
  arguments.check_apart(std::span(&in, 1), outs, 0, rank);
  const BlockSizes sizes = sizes_of(outs);
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {.descriptor = {.kind = OperationKind::kAllGather,
                                         .dtype = in.dtype,
                                         .count = sizes.total,
                                         .detail = sizes.detail.pack()},
                          .in = in,
                          .outs = std::move(outs),
                          .label = options.label}};
  arguments.check_operation(call.operation);
  return call;
}

Call gather_call(Membership& membership,
                 const Buffer& in,
                 const Blocks& out,
                 const GatherOptions& options) {
  const Arguments arguments(membership, "gather", options.label);
  arguments.check_root(options.root);
  arguments.check_buffer(in, "in");
  std::vector<Buffer> outs = rooted_blocks(arguments, out, "out", in.dtype, options);
  const BlockSizes sizes = rooted_sizes(arguments, in, "in", out, options);
  if (!outs.empty()) {
    check_root_block(arguments, outs, in, "in");
    arguments.check_apart(std::span(&in, 1), outs, 0, arguments.rank());
  }
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {.descriptor = {.kind = OperationKind::kGather,
                                         .dtype = in.dtype,
                                         .root = options.root,
                                         .count = sizes.total,
                                         .detail = sizes.detail.pack()},
                          .in = in,
                          .outs = std::move(outs),
                          .label = options.label}};
  arguments.check_operation(call.operation);
  return call;
}

Call scatter_call(Membership& membership,
                  const Blocks& in,
                  const Buffer& out,
                  const ScatterOptions& options) {
  const Arguments arguments(membership, "scatter", options.label);
  arguments.check_root(options.root);
  arguments.check_buffer(out, "out");
  std::vector<Buffer> ins = rooted_blocks(arguments, in, "in", out.dtype, options);
  const BlockSizes sizes = rooted_sizes(arguments, out, "out", in, options);
  if (!ins.empty()) {
    check_root_block(arguments, ins, out, "out");
    arguments.check_apart(ins, std::span(&out, 1), arguments.rank(), 0);
  }
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {.descriptor = {.kind = OperationKind::kScatter,
                                         .dtype = out.dtype,
                                         .root = options.root,
                                         .count = sizes.total,
                                         .detail = sizes.detail.pack()},
                          .out = out,
                          .ins = std::move(ins),
                          .label = options.label}};
  arguments.check_operation(call.operation);
  return call;
}

Call all_to_all_call(Membership& membership,
                     const Blocks& in,
                     const Blocks& out,
                     const AllToAllOptions& options) {
  const Arguments arguments(membership, "all_to_all", options.label);
  DType dtype = in.list.empty() ? DType::kFloat32 : in.list.front().dtype;
  std::int64_t count = kUneven;
  if (!in.is_list()) {
    dtype = in.whole->dtype;
    arguments.check_buffer(*in.whole, "in");
    arguments.check_dtype(*out.whole, "out", dtype);
    if (options.in_counts.empty() != options.out_counts.empty()) {
      throw arguments.invalid("in_counts and out_counts come together or not at all");
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
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {
                .descriptor = {.kind = OperationKind::kAllToAll, .dtype = dtype, .count = count},
                .ins = std::move(ins),
                .outs = std::move(outs),
                .label = options.label}};
  arguments.check_operation(call.operation);
  return call;
}

Call barrier_call(Membership& membership, const BarrierOptions& options) {
  const Arguments arguments(membership, "barrier", options.label);
  return barrier_call(arguments, OperationKind::kBarrier, options);
}

Call monitored_barrier_call(Membership& membership, const BarrierOptions& options) {
  const Arguments arguments(membership, "monitored_barrier", options.label);
  return barrier_call(arguments, OperationKind::kMonitoredBarrier, options);
}

}  // namespace unisono::comm
