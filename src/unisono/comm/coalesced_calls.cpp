#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/comm/agreement.h"
#include "unisono/comm/arguments.h"
#include "unisono/comm/call.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/options.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {
namespace {

using transport::OperationKind;
using Buffers = std::span<const Buffer>;

DType dtype_of(Buffers buffers) {
  return buffers.empty() ? DType::kFloat32 : buffers.front().dtype;
}

// As many as `like` has, of this dtype, each `factor` times as large as its counterpart.
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

// Those of `parts`, one for each of `wholes`, that are not its very block of this rank.
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

void check_blocks_are_equal(const Arguments& arguments, std::span<const std::int64_t> counts) {
  if (!counts.empty()) {
    throw arguments.invalid("blocks of different sizes can't be coalesced: counts must be empty");
  }
}

engine::Operation operation_of(
    OperationKind kind, Buffers ins, Buffers outs, Buffers counted, std::string label) {
  const BlockSizes sizes = sizes_of_coalesced(counted);
  return {.descriptor = {.kind = kind,
                         .dtype = dtype_of(ins),
                         .count = sizes.total,
                         .detail = sizes.detail.pack()},
          .ins = {ins.begin(), ins.end()},
          .outs = {outs.begin(), outs.end()},
          .label = std::move(label)};
}

}  // namespace

Call all_reduce_coalesced_call(Membership& membership,
                               Buffers buffers,
                               const AllReduceOptions& options) {
  const Arguments arguments(membership, "all_reduce_coalesced", options.label);
  check_buffers(arguments, buffers, "buffers", buffers, 1);
  arguments.check_apart({}, buffers, -1, -1);
  engine::Operation operation =
      operation_of(OperationKind::kAllReduceCoalesced, buffers, buffers, buffers, options.label);
  set_reduction(operation, options.op, options.algorithm);
  arguments.check_operation(operation);
  return {.limit = arguments.limit(options.timeout), .operation = std::move(operation)};
}

Call all_gather_coalesced_call(Membership& membership,
                               Buffers ins,
                               Buffers outs,
                               const AllGatherOptions& options) {
  const Arguments arguments(membership, "all_gather_coalesced", options.label);
  check_blocks_are_equal(arguments, options.counts);
  check_buffers(arguments, ins, "in", ins, 1);
  check_buffers(arguments, outs, "out", ins, arguments.world_size());
  arguments.check_apart(without_own_blocks(arguments, ins, outs), outs, -1, -1);
  engine::Operation operation =
      operation_of(OperationKind::kAllGatherCoalesced, ins, outs, outs, options.label);
  arguments.check_operation(operation);
  return {.limit = arguments.limit(options.timeout), .operation = std::move(operation)};
}

Call reduce_scatter_coalesced_call(Membership& membership,
                                   Buffers ins,
                                   Buffers outs,
                                   const ReduceScatterOptions& options) {
  const Arguments arguments(membership, "reduce_scatter_coalesced", options.label);
  check_blocks_are_equal(arguments, options.counts);
  check_buffers(arguments, outs, "out", outs, 1);
  check_buffers(arguments, ins, "in", outs, arguments.world_size());
  arguments.check_apart(ins, without_own_blocks(arguments, outs, ins), -1, -1);
  engine::Operation operation =
      operation_of(OperationKind::kReduceScatterCoalesced, ins, outs, ins, options.label);
  set_reduction(operation, options.op, options.algorithm);
  arguments.check_operation(operation);
  return {.limit = arguments.limit(options.timeout), .operation = std::move(operation)};
}

}  // namespace unisono::comm
