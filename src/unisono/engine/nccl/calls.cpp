#include "unisono/engine/nccl/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine::nccl {
namespace {

// Returns NCCL's form of the type for arithmetic; std::nullopt for 16-bit integers.
std::optional<Elements> numbers_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return Elements{ncclInt8, 1};
    case DType::kUInt8:
    case DType::kBool:
      return Elements{ncclUint8, 1};
    case DType::kInt32:
      return Elements{ncclInt32, 1};
    case DType::kUInt32:
      return Elements{ncclUint32, 1};
    case DType::kInt64:
      return Elements{ncclInt64, 1};
    case DType::kUInt64:
      return Elements{ncclUint64, 1};
    case DType::kFloat16:
      return Elements{ncclFloat16, 1};
    case DType::kBFloat16:
      return Elements{ncclBfloat16, 1};
    case DType::kFloat32:
      return Elements{ncclFloat32, 1};
    case DType::kFloat64:
      return Elements{ncclFloat64, 1};
    case DType::kComplex64:
      return Elements{ncclFloat32, 2};
    case DType::kComplex128:
      return Elements{ncclFloat64, 2};
    case DType::kInt16:
    case DType::kUInt16:
      break;
  }
  return std::nullopt;
}

// Returns NCCL's operation on integers and floats; std::nullopt for kinds that NCCL does not have.
std::optional<ncclRedOp_t> op_for_numbers(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return ncclSum;
    case ReduceKind::kAvg:
      return ncclAvg;
    case ReduceKind::kProduct:
      return ncclProd;
    case ReduceKind::kMin:
      return ncclMin;
    case ReduceKind::kMax:
      return ncclMax;
    default:
      return std::nullopt;
  }
}

// Returns the operation on bytes that are 0 or 1.
std::optional<ncclRedOp_t> op_for_bools(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kMax:
    case ReduceKind::kBor:
      return ncclMax;
    case ReduceKind::kProduct:
    case ReduceKind::kMin:
    case ReduceKind::kBand:
      return ncclMin;
    default:
      return std::nullopt;
  }
}

// Returns the operation, which applies to real and imaginary parts separately.
std::optional<ncclRedOp_t> op_for_complex(ReduceKind kind) {
  return kind == ReduceKind::kSum || kind == ReduceKind::kAvg ? op_for_numbers(kind) : std::nullopt;
}

std::optional<ncclRedOp_t> find_op(DType dtype, ReduceKind kind) {
  switch (dtype) {
    case DType::kBool:
      return op_for_bools(kind);
    case DType::kComplex64:
    case DType::kComplex128:
      return op_for_complex(kind);
    default:
      return op_for_numbers(kind);
  }
}

}  // namespace

Elements bytes_of(DType dtype) {
  return {.type = ncclUint8, .per_element = static_cast<std::int64_t>(size_of(dtype))};
}

Reduction find_reduction(DType dtype, ReduceKind kind) {
  kernels::check_reduction(dtype, kind);
  const std::optional<Elements> elements = numbers_of(dtype);
  const std::optional<ncclRedOp_t> op = find_op(dtype, kind);
  if (!elements || !op) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("NCCL has no {} of {}; copy the buffer to the CPU, where this group "
                            "has it",
                            to_string(kind),
                            to_string(dtype)));
  }
  return {.elements = *elements, .op = *op};
}

namespace {

using transport::OperationKind;

// Returns whether the blocks have equal sizes and are contiguous in memory.
bool are_one_buffer(std::span<const Buffer> blocks) {
  const auto* const begin = static_cast<const std::byte*>(blocks.front().data);
  const std::int64_t n_bytes = blocks.front().n_bytes();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].n_bytes() != n_bytes ||
        blocks[i].data != begin + static_cast<std::int64_t>(i) * n_bytes) {
      return false;
    }
  }
  return true;
}

// The NCCL calls of an operation, as a group: NCCL begins them together at the end of the group.
class Calls {
 public:
  explicit Calls(const CallTarget& target)
      : target_(target),
        library_(target.library),
        stream_(static_cast<cudaStream_t>(target.stream)) {
    note(library_.begin_group());
  }

  [[nodiscard]] ncclResult_t end() {
    const ncclResult_t ended = library_.end_group();
    return result_ == ncclSuccess ? ended : result_;
  }

  void all_reduce(const Buffer& in, const Buffer& out, const Reduction& reduction) {
    if (in.count > 0) {
      note(library_.all_reduce(in.data,
                               out.data,
                               count(in, reduction.elements),
                               reduction.elements.type,
                               reduction.op,
                               target_.communicator,
                               stream_));
    }
  }

  void reduce(const Buffer& in, void* out, int root, const Reduction& reduction) {
    if (in.count > 0) {
      note(library_.reduce(in.data,
                           out,
                           count(in, reduction.elements),
                           reduction.elements.type,
                           reduction.op,
                           root,
                           target_.communicator,
                           stream_));
    }
  }

  // `in` is used only on the root.
  void broadcast(const void* in, const Buffer& out, int root) {
    if (out.count > 0) {
      note(library_.broadcast(
          in, out.data, n_bytes(out), ncclUint8, root, target_.communicator, stream_));
    }
  }

  // `out` is the begin of contiguous blocks, a block for each rank.
  void all_gather(const Buffer& in, void* out) {
    if (in.count > 0) {
      note(
          library_.all_gather(in.data, out, n_bytes(in), ncclUint8, target_.communicator, stream_));
    }
  }

  // `in` is the begin of contiguous blocks, a block for each rank.
  void reduce_scatter(const void* in, const Buffer& out, const Reduction& reduction) {
    if (out.count > 0) {
      note(library_.reduce_scatter(in,
                                   out.data,
                                   count(out, reduction.elements),
                                   reduction.elements.type,
                                   reduction.op,
                                   target_.communicator,
                                   stream_));
    }
  }

  void send(const Buffer& block, int peer) {
    if (block.count > 0) {
      note(library_.send(
          block.data, n_bytes(block), ncclUint8, peer, target_.communicator, stream_));
    }
  }

  void receive(const Buffer& block, int peer) {
    if (block.count > 0) {
      note(library_.receive(
          block.data, n_bytes(block), ncclUint8, peer, target_.communicator, stream_));
    }
  }

  // Copies this rank's own block, unless the block is already in place.
  void pass(const Buffer& in, const Buffer& out) {
    if (in.data != out.data) {
      send(in, target_.rank);
      receive(out, target_.rank);
    }
  }

 private:
  static std::size_t count(const Buffer& buffer, const Elements& elements) {
    return static_cast<std::size_t>(buffer.count * elements.per_element);
  }

  static std::size_t n_bytes(const Buffer& buffer) {
    return static_cast<std::size_t>(buffer.n_bytes());
  }

  void note(ncclResult_t result) {
    if (result_ == ncclSuccess && result != ncclInProgress) {
      result_ = result;
    }
  }

  const CallTarget& target_;
  const NcclLibrary& library_;
  cudaStream_t stream_;
  ncclResult_t result_ = ncclSuccess;
};

void all_gather(Calls& calls, const CallTarget& target, const Operation& operation) {
  if (are_one_buffer(operation.outs)) {
    calls.all_gather(operation.in, operation.outs.front().data);
    return;
  }
  for (int root = 0; root < target.world_size; ++root) {
    calls.broadcast(operation.in.data, operation.outs[static_cast<std::size_t>(root)], root);
  }
}

void reduce_scatter(Calls& calls,
                    const CallTarget& target,
                    const Operation& operation,
                    const Reduction& reduction) {
  if (are_one_buffer(operation.ins)) {
    calls.reduce_scatter(operation.ins.front().data, operation.out, reduction);
    return;
  }
  for (int root = 0; root < target.world_size; ++root) {
    calls.reduce(operation.ins[static_cast<std::size_t>(root)],
                 root == target.rank ? operation.out.data : nullptr,
                 root,
                 reduction);
  }
}

// Sends and receives the blocks of gather, scatter and all_to_all.
void exchange(Calls& calls,
              const CallTarget& target,
              std::span<const Buffer> ins,
              std::span<const Buffer> outs) {
  const auto self = static_cast<std::size_t>(target.rank);
  for (int peer = 0; peer < target.world_size; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (peer == target.rank) {
      continue;
    }
    if (!ins.empty()) {
      calls.send(ins[at], peer);
    }
    if (!outs.empty()) {
      calls.receive(outs[at], peer);
    }
  }
  if (!ins.empty() && !outs.empty()) {
    calls.pass(ins[self], outs[self]);
  }
}

void gather(Calls& calls, const CallTarget& target, const Operation& operation) {
  const int root = operation.descriptor.root;
  if (target.rank != root) {
    calls.send(operation.in, root);
    return;
  }
  exchange(calls, target, {}, operation.outs);
  calls.pass(operation.in, operation.outs[static_cast<std::size_t>(root)]);
}

void scatter(Calls& calls, const CallTarget& target, const Operation& operation) {
  const int root = operation.descriptor.root;
  if (target.rank != root) {
    calls.receive(operation.out, root);
    return;
  }
  exchange(calls, target, operation.ins, {});
  calls.pass(operation.ins[static_cast<std::size_t>(root)], operation.out);
}

// The switch lists every kind, so that the compiler reports a missing case.
void call(Calls& calls, const CallTarget& target, const Operation& operation) {
  const transport::Descriptor& descriptor = operation.descriptor;
  const auto reduction = [&] { return find_reduction(descriptor.dtype, descriptor.reduce); };
  switch (descriptor.kind) {
    case OperationKind::kBroadcast:
      return calls.broadcast(operation.in.data, operation.out, descriptor.root);
    case OperationKind::kAllReduce:
      return calls.all_reduce(operation.in, operation.out, reduction());
    case OperationKind::kAllReduceCoalesced:
      for (std::size_t i = 0; i < operation.ins.size(); ++i) {
        calls.all_reduce(operation.ins[i], operation.outs[i], reduction());
      }
      return;
    case OperationKind::kReduce:
      return calls.reduce(operation.in, operation.out.data, descriptor.root, reduction());
    case OperationKind::kReduceScatter:
      return reduce_scatter(calls, target, operation, reduction());
    case OperationKind::kReduceScatterCoalesced:
      for (std::size_t i = 0; i < operation.ins.size(); ++i) {
        calls.reduce_scatter(operation.ins[i].data, operation.outs[i], reduction());
      }
      return;
    case OperationKind::kAllGather:
      return all_gather(calls, target, operation);
    case OperationKind::kAllGatherCoalesced:
      for (std::size_t i = 0; i < operation.ins.size(); ++i) {
        calls.all_gather(operation.ins[i], operation.outs[i].data);
      }
      return;
    case OperationKind::kGather:
      return gather(calls, target, operation);
    case OperationKind::kScatter:
      return scatter(calls, target, operation);
    case OperationKind::kAllToAll:
      return exchange(calls, target, operation.ins, operation.outs);
    case OperationKind::kNone:
    case OperationKind::kBarrier:
    case OperationKind::kMonitoredBarrier:
      break;
  }
  UNISONO_CHECK(false, "NCCL has no calls for this operation");
}

}  // namespace

ncclResult_t enqueue(const CallTarget& target, const Operation& operation) {
  Calls calls(target);
  call(calls, target, operation);
  return calls.end();
}

}  // namespace unisono::engine::nccl
