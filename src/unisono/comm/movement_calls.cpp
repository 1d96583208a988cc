#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/agreement.h"
#include "unisono/comm/arguments.h"
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
// this rank's block is as large as any.
BlockSizes rooted_sizes(const Arguments& arguments,
                        const Buffer& own,
                        const char* name,
                        const RootedOptions& options) {
  if (options.counts.empty()) {
    return {.total = own.count};
  }
  arguments.check_counts(options.counts);
  arguments.check_count(own, name, options.counts[static_cast<std::size_t>(arguments.rank())]);
  return sizes_of(options.counts);
}

// What the root passes must fit what every rank passes.
void check_root_block(const Arguments& arguments,
                      const std::vector<Buffer>& blocks,
                      const Buffer& own,
                      const char* name) {
  const Buffer& block = blocks[static_cast<std::size_t>(arguments.rank())];
  arguments.check_count(own, name, block.count);
}

Call all_gather_call(const Arguments& arguments,
                     const Buffer& in,
                     std::vector<Buffer> outs,
                     const AllGatherOptions& options) {
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

Call gather_call(const Arguments& arguments,
                 const Buffer& in,
                 std::vector<Buffer> outs,
                 const BlockSizes& sizes,
                 const GatherOptions& options) {
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

Call scatter_call(const Arguments& arguments,
                  std::vector<Buffer> ins,
                  const Buffer& out,
                  const BlockSizes& sizes,
                  const ScatterOptions& options) {
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

Call all_to_all_call(const Arguments& arguments,
                     std::vector<Buffer> ins,
                     std::vector<Buffer> outs,
                     std::int64_t count,
                     const AllToAllOptions& options) {
  const auto rank = static_cast<std::size_t>(arguments.rank());
  arguments.check_count(outs[rank], "the own block of out", ins[rank].count);
  arguments.check_apart(ins, outs, -1, -1);
  const DType dtype = ins.front().dtype;
  Call call{.limit = arguments.limit(options.timeout),
            .operation = {
                .descriptor = {.kind = OperationKind::kAllToAll, .dtype = dtype, .count = count},
                .ins = std::move(ins),
                .outs = std::move(outs),
                .label = options.label}};
  arguments.check_operation(call.operation);
  return call;
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
                     const Buffer& out,
                     const AllGatherOptions& options) {
  const Arguments arguments(membership, "all_gather", options.label);
  arguments.check_buffer(in, "in");
  arguments.check_dtype(out, "out", in.dtype);
  return all_gather_call(arguments, in, arguments.blocks_of(out, "out", options.counts), options);
}

Call all_gather_call(Membership& membership,
                     const Buffer& in,
                     std::span<const Buffer> outs,
                     const AllGatherOptions& options) {
  const Arguments arguments(membership, "all_gather", options.label);
  arguments.check_buffer(in, "in");
  arguments.check_list(outs, "out", in.dtype);
  arguments.check_list_counts(outs, "out", options.counts);
  return all_gather_call(arguments, in, {outs.begin(), outs.end()}, options);
}

Call gather_call(Membership& membership,
                 const Buffer& in,
                 const Buffer& out,
                 const GatherOptions& options) {
  const Arguments arguments(membership, "gather", options.label);
  arguments.check_root(options.root);
  arguments.check_buffer(in, "in");
  std::vector<Buffer> outs;
  if (arguments.rank() == options.root) {
    arguments.check_dtype(out, "out", in.dtype);
    outs = arguments.blocks_of(out, "out", options.counts);
  } else {
    arguments.check_absent(out, "out");
  }
  const BlockSizes sizes = rooted_sizes(arguments, in, "in", options);
  return gather_call(arguments, in, std::move(outs), sizes, options);
}

Call gather_call(Membership& membership,
                 const Buffer& in,
                 std::span<const Buffer> outs,
                 const GatherOptions& options) {
  const Arguments arguments(membership, "gather", options.label);
  arguments.check_root(options.root);
  arguments.check_buffer(in, "in");
  if (arguments.rank() == options.root) {
    arguments.check_list(outs, "out", in.dtype);
    arguments.check_list_counts(outs, "out", options.counts);
  } else {
    arguments.check_absent(outs, "out");
  }
  const BlockSizes sizes = options.counts.empty() ? BlockSizes{.total = kUneven}
                                                  : rooted_sizes(arguments, in, "in", options);
  return gather_call(arguments, in, {outs.begin(), outs.end()}, sizes, options);
}

Call scatter_call(Membership& membership,
                  const Buffer& in,
                  const Buffer& out,
                  const ScatterOptions& options) {
  const Arguments arguments(membership, "scatter", options.label);
  arguments.check_root(options.root);
  arguments.check_buffer(out, "out");
  std::vector<Buffer> ins;
  if (arguments.rank() == options.root) {
    arguments.check_dtype(in, "in", out.dtype);
    ins = arguments.blocks_of(in, "in", options.counts);
  } else {
    arguments.check_absent(in, "in");
  }
  const BlockSizes sizes = rooted_sizes(arguments, out, "out", options);
  return scatter_call(arguments, std::move(ins), out, sizes, options);
}

Call scatter_call(Membership& membership,
                  std::span<const Buffer> ins,
                  const Buffer& out,
                  const ScatterOptions& options) {
  const Arguments arguments(membership, "scatter", options.label);
  arguments.check_root(options.root);
  arguments.check_buffer(out, "out");
  if (arguments.rank() == options.root) {
    arguments.check_list(ins, "in", out.dtype);
    arguments.check_list_counts(ins, "in", options.counts);
  } else {
    arguments.check_absent(ins, "in");
  }
  const BlockSizes sizes = options.counts.empty() ? BlockSizes{.total = kUneven}
                                                  : rooted_sizes(arguments, out, "out", options);
  return scatter_call(arguments, {ins.begin(), ins.end()}, out, sizes, options);
}

Call all_to_all_call(Membership& membership,
                     const Buffer& in,
                     const Buffer& out,
                     const AllToAllOptions& options) {
  const Arguments arguments(membership, "all_to_all", options.label);
  arguments.check_buffer(in, "in");
  arguments.check_dtype(out, "out", in.dtype);
  if (options.in_counts.empty() != options.out_counts.empty()) {
    throw arguments.invalid("in_counts and out_counts come together or not at all");
  }
  const bool is_even = options.in_counts.empty();
  if (is_even) {
    arguments.check_count(out, "out", in.count);
  }
  return all_to_all_call(arguments,
                         arguments.blocks_of(in, "in", options.in_counts),
                         arguments.blocks_of(out, "out", options.out_counts),
                         is_even ? in.count / arguments.world_size() : kUneven,
                         options);
}

Call all_to_all_call(Membership& membership,
                     std::span<const Buffer> ins,
                     std::span<const Buffer> outs,
                     const AllToAllOptions& options) {
  const Arguments arguments(membership, "all_to_all", options.label);
  const DType dtype = ins.empty() ? DType::kFloat32 : ins.front().dtype;
  arguments.check_list(ins, "in", dtype);
  arguments.check_list(outs, "out", dtype);
  arguments.check_list_counts(ins, "in", options.in_counts);
  arguments.check_list_counts(outs, "out", options.out_counts);
  return all_to_all_call(
      arguments, {ins.begin(), ins.end()}, {outs.begin(), outs.end()}, kUneven, options);
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
