#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/options.h"
#include "unisono/comm/work.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/small_floats.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/comm_hooks/hook_support.h"
#include "unisono/torch/ddp/comm_hooks/lossy_floats.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

// A reduction of one input converts elements, at any alignment.
void convert_bfloat16(const void* from, bool is_to_float, std::int64_t count, void* to) {
  const kernels::ReduceInput input{.data = from, .is_partial = !is_to_float};
  kernels::reduce({.dtype = DType::kBFloat16,
                   .kind = ReduceKind::kSum,
                   .inputs = std::span(&input, 1),
                   .steps = {},
                   .outputs = std::span(&to, 1),
                   .output_is_partial = is_to_float},
                  count);
}

std::int64_t bfloat16_bytes(std::int64_t count) {
  return count * std::int64_t{2};
}

void encode_bfloat16(const float* floats, std::int64_t count, std::byte* bytes) {
  convert_bfloat16(floats, false, count, bytes);
}

void decode_bfloat16(const std::byte* bytes, std::int64_t count, float* floats) {
  convert_bfloat16(bytes, true, count, floats);
}

struct Format {
  std::int64_t (*n_bytes)(std::int64_t count);
  void (*encode)(const float* floats, std::int64_t count, std::byte* bytes);
  void (*decode)(const std::byte* bytes, std::int64_t count, float* floats);
};

Format format_of(QuantizedType type) {
  switch (type) {
    case QuantizedType::kBFloat16:
      return {bfloat16_bytes, encode_bfloat16, decode_bfloat16};
    case QuantizedType::kInt8:
      return {ddp::int8_bytes, ddp::encode_int8, ddp::decode_int8};
    case QuantizedType::kFloat8:
      return {kernels::float8_bytes, kernels::encode_float8, kernels::decode_float8};
  }
  throw Error(ErrorCode::kInvalidArgument, "QuantizeState: there is no such quantized type");
}

constexpr std::int64_t kBlock = ddp::kInt8Block;
static_assert(kBlock == kernels::kFloat8Block);

// Floats are processed in pieces that stay in the cache: a separate pass over the bucket for each
// operation would take longer than sending the bucket. A piece begins with the scales of all its
// blocks. The last piece may be shorter.
constexpr std::int64_t kPiece = 128 * kBlock;

// Calls `visit(first, n, bytes)` for each piece, with the elements and the position of the bytes.
template <class Visit>
void for_each_piece(const Format& format, std::int64_t count, std::byte* bytes, Visit visit) {
  for (std::int64_t first = 0; first < count; first += kPiece) {
    const std::int64_t n = std::min(kPiece, count - first);
    visit(first, n, bytes);
    bytes += format.n_bytes(n);
  }
}

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

collective::Topology topology_of(const ProcessGroup& group) {
  std::vector<std::string> nodes;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    nodes.push_back(group.roster().members[static_cast<std::size_t>(rank)].node);
  }
  return {group.rank(), nodes};
}

}  // namespace

QuantizeState::QuantizeState(std::shared_ptr<ProcessGroup> group, QuantizedType type)
    : group_(std::move(group)), type_(type) {
  if (group_ == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "QuantizeState: the process group is null");
  }
  const collective::Topology topology = topology_of(*group_);
  n_nodes_ = topology.n_nodes();
  const int n_ranks = topology.world_size();
  bool has_shared_node = false;
  for (int rank = 0; rank < n_ranks; ++rank) {
    const auto n_local = static_cast<int>(topology.ranks_of(topology.node_of(rank)).size());
    const int local_rank = topology.local_rank_of(rank);
    carried_.push_back(
        {.begin = n_ranks * local_rank / n_local, .end = n_ranks * (local_rank + 1) / n_local});
    has_shared_node = has_shared_node || n_local > 1;
  }
  node_ranks_.assign(topology.local_ranks().begin(), topology.local_ranks().end());
  if (n_nodes_ > 1 && has_shared_node) {
    node_ = group_->split(topology.node(), topology.local_rank());
  }
}

/// The reduction of a bucket in a backward pass, shared by the functions that finish the bucket.
///
/// The bucket is cut into a chunk for each rank, which computes the mean of the chunk. On each node
/// a single rank, the carrier, sends the node's sum of a chunk to the chunk's rank. Used on the
/// thread of the backward pass. Throws Error if an operation fails.
class QuantizePass {
 public:
  QuantizePass(QuantizeState& state, const GradBucket& bucket)
      : state_(state), bucket_(bucket), group_(*state.group_), format_(format_of(state.type_)) {
    const std::int64_t n_ranks = group_.world_size();
    const std::int64_t n_blocks = (bucket.buffer().numel() + kBlock - 1) / kBlock;
    chunk_elems_ = (n_blocks + n_ranks - 1) / n_ranks * kBlock;
    byte_begins_.push_back(0);
    for (int rank = 0; rank < n_ranks; ++rank) {
      n_bytes_.push_back(format_.n_bytes(n_elems(rank, rank + 1)));
      byte_begins_.push_back(byte_begins_.back() + n_bytes_.back());
    }
  }

  // Starts to send every node's sum of a chunk to the chunk's rank. The reduction inside the node
  // blocks, so that the slower exchange between nodes starts during backward.
  Work exchange() {
    state_.errors_.add_to(bucket_);
    gradients_ = on_host(bucket_.buffer());
    error_ = gradients_.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    const auto [begin, end] = carried(group_.rank());
    const at::Tensor sums = node_sums();
    sent_ = at::empty({byte_begin(end) - byte_begin(begin)}, at::kByte);
    std::vector<std::int64_t> in_counts(n_bytes_.size(), 0);
    for (int chunk = begin; chunk < end; ++chunk) {
      quantize(sums.data_ptr<float>() + n_elems(begin, chunk),
               n_elems(chunk, chunk + 1),
               bytes_of(sent_) + byte_begin(chunk) - byte_begin(begin));
      in_counts[static_cast<std::size_t>(chunk)] = n_bytes_of(chunk);
    }
    if (is_summed_in_node()) {
      error_.zero_();
      error_.narrow(0, elem_begin(begin), sums.numel()).copy_(sums);
    }
    std::vector<std::int64_t> out_counts;
    for (int from = 0; from < group_.world_size(); ++from) {
      const auto [first, last] = carried(from);
      const bool is_carrier = first <= group_.rank() && group_.rank() < last;
      out_counts.push_back(is_carrier ? n_bytes_of(group_.rank()) : 0);
    }
    received_ = at::empty({state_.n_nodes_ * n_bytes_of(group_.rank())}, at::kByte);
    return all_to_all_async(group_,
                            sent_,
                            received_,
                            {.in_counts = std::move(in_counts),
                             .out_counts = std::move(out_counts),
                             .timeout = bucket_.timeout(),
                             .label = bucket_.label()});
  }

  // Computes the mean of this rank's chunk and starts to send all means to all ranks.
  Work spread() {
    const int rank = group_.rank();
    const auto n_ranks = static_cast<float>(group_.world_size());
    const at::Tensor mine = at::empty({n_bytes_of(rank)}, at::kByte);
    std::vector<float> part(kPiece);
    std::vector<float> mean(kPiece);
    float* const error = error_.data_ptr<float>() + elem_begin(rank);
    for_each_piece(format_,
                   n_elems(rank, rank + 1),
                   bytes_of(mine),
                   [&](std::int64_t first, std::int64_t n, std::byte* bytes) {
                     const std::int64_t offset = bytes - bytes_of(mine);
                     std::fill(mean.begin(), mean.end(), 0.0F);
                     for (int node = 0; node < state_.n_nodes_; ++node) {
                       format_.decode(
                           bytes_of(received_) + node * n_bytes_of(rank) + offset, n, part.data());
                       ddp::add_floats(mean.data(), part.data(), n);
                     }
                     ddp::divide_floats(mean.data(), n_ranks, n);
                     format_.encode(mean.data(), n, bytes);
                     format_.decode(bytes, n, part.data());
                     // The gradients of all ranks lack the loss of the mean: this rank keeps the
                     // loss for all.
                     ddp::add_lost(error + first, mean.data(), part.data(), n_ranks, n);
                   });
    means_ = at::empty({byte_begins_.back()}, at::kByte);
    return all_gather_async(
        group_,
        mine,
        means_,
        {.counts = n_bytes_, .timeout = bucket_.timeout(), .label = bucket_.label() + " means"});
  }

  // Writes the means into the gradients only. Elements between gradients must stay zero: a NaN
  // there would turn the block into NaNs in every later pass.
  void finish() {
    std::vector<float> part(kPiece);
    const std::vector<ddp::BufferRange> ranges = ddp::gradient_ranges(bucket_);
    std::span<const ddp::BufferRange> left(ranges);
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      for_each_piece(format_,
                     n_elems(rank, rank + 1),
                     bytes_of(means_) + byte_begin(rank),
                     [&](std::int64_t first, std::int64_t n, const std::byte* bytes) {
                       format_.decode(bytes, n, part.data());
                       put(left, elem_begin(rank) + first, std::span(part).first(n));
                     });
    }
    if (!gradients_.is_same(bucket_.buffer())) {
      bucket_.buffer().copy_(gradients_, /*non_blocking=*/true);
    }
    state_.errors_.keep(bucket_, error_.to(bucket_.buffer().options()));
  }

 private:
  [[nodiscard]] QuantizeState::CarriedChunks carried(int rank) const {
    return state_.carried_[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] std::int64_t elem_begin(int chunk) const {
    return std::min(chunk * chunk_elems_, bucket_.buffer().numel());
  }

  // Returns the number of elements of the chunks from `begin` to `end`.
  [[nodiscard]] std::int64_t n_elems(int begin, int end) const {
    return elem_begin(end) - elem_begin(begin);
  }

  [[nodiscard]] std::int64_t byte_begin(int chunk) const {
    return byte_begins_[static_cast<std::size_t>(chunk)];
  }

  [[nodiscard]] std::int64_t n_bytes_of(int chunk) const {
    return n_bytes_[static_cast<std::size_t>(chunk)];
  }

  [[nodiscard]] bool is_summed_in_node() const { return state_.node_ranks_.size() > 1; }

  // Returns the node's sums of the chunks that this rank carries. A rank that is alone on the node
  // carries all chunks, and the sums are the gradients themselves.
  [[nodiscard]] at::Tensor node_sums() const {
    if (!is_summed_in_node()) {
      return error_;
    }
    std::vector<std::int64_t> counts;
    for (const int rank : state_.node_ranks_) {
      counts.push_back(n_elems(carried(rank).begin, carried(rank).end));
    }
    const auto [begin, end] = carried(group_.rank());
    const at::Tensor sums = at::empty({n_elems(begin, end)}, at::kFloat);
    reduce_scatter(*state_.node_,
                   error_,
                   sums,
                   {.counts = std::move(counts),
                    .timeout = bucket_.timeout(),
                    .label = bucket_.label() + " in the node"});
    return sums;
  }

  // Encodes the floats, and replaces each float by the loss of encoding.
  void quantize(float* floats, std::int64_t count, std::byte* bytes) const {
    std::vector<float> part(kPiece);
    for_each_piece(format_, count, bytes, [&](std::int64_t first, std::int64_t n, auto* at) {
      format_.encode(floats + first, n, at);
      format_.decode(at, n, part.data());
      ddp::subtract_finite(floats + first, part.data(), n);
    });
  }

  // Copies `floats` to the bucket's elements from `first` on, except to elements between gradients.
  // `left` holds the ranges of gradients in ascending order. Ranges that end before `first` are
  // dropped.
  void put(std::span<const ddp::BufferRange>& left,
           std::int64_t first,
           std::span<const float> floats) const {
    while (!left.empty() && left.front().first + left.front().count <= first) {
      left = left.subspan(1);
    }
    const std::int64_t end = first + std::ssize(floats);
    for (const ddp::BufferRange& range : left) {
      if (range.first >= end) {
        break;
      }
      const std::int64_t lo = std::max(range.first, first);
      const std::int64_t n = std::min(range.first + range.count, end) - lo;
      if (n > 0) {
        gradients_.narrow(0, lo, n).copy_(
            at::from_blob(const_cast<float*>(floats.data() + lo - first), {n}, at::kFloat));
      }
    }
  }

  QuantizeState& state_;
  GradBucket bucket_;
  ProcessGroup& group_;
  Format format_;
  std::int64_t chunk_elems_ = 0;
  std::vector<std::int64_t> n_bytes_;  // sizes of the quantized chunks
  // start of each chunk in the quantized bucket, and the end
  std::vector<std::int64_t> byte_begins_;
  at::Tensor gradients_;  // The bucket's buffer, or a copy on the host.
  at::Tensor sent_;
  at::Tensor received_;
  at::Tensor means_;
  at::Tensor error_;
};

BucketWork quantize_hook(QuantizeState& state, const GradBucket& bucket) {
  if (state.n_nodes_ == 1 || !at::isFloatingType(bucket.buffer().scalar_type())) {
    return allreduce_hook(*state.group_, bucket);
  }
  auto pass = std::make_shared<QuantizePass>(state, bucket);
  const auto finish = [pass] {
    pass->finish();
    return BucketWork();
  };
  const auto spread = [pass, finish] { return BucketWork{.work = pass->spread(), .then = finish}; };
  return {.work = pass->exchange(), .then = spread};
}

}  // namespace unisono
