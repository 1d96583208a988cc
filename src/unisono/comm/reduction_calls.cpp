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

using transport::OperationKind;

// Throws what the engine says of the operation.
template <class Options>
void complete(Call& call, const Arguments& arguments, const Options& options) {
  set_reduction(call.operation, options.op, options.algorithm);
  call.operation.label = options.label;
  arguments.check_operation(call.operation);
}

}  // namespace

Call all_reduce_call(Membership& membership,
                     const Buffer& in,
                     const Buffer& out,
                     const AllReduceOptions& options) {
  const Arguments arguments(membership, "all_reduce", options.label);
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

Call reduce_call(Membership& membership,
                 const Buffer& in,
                 const Buffer& out,
                 const ReduceOptions& options) {
  const Arguments arguments(membership, "reduce", options.label);
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

Call reduce_scatter_call(Membership& membership,
                         const Blocks& in,
                         const Buffer& out,
                         const ReduceScatterOptions& options) {
  const Arguments arguments(membership, "reduce_scatter", options.label);
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
                          .in = in.is_list() ? Buffer() : *in.whole,
                          .out = out,
                          .ins = std::move(ins)}};
  complete(call, arguments, options);
  return call;
}

}  // namespace unisono::comm
