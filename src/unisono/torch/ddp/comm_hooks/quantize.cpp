#include "unisono/torch/ddp/comm_hooks/quantize.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/kernels/compress.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/comm_hooks/gradient_views.h"
#include "unisono/torch/ddp/comm_hooks/int8_blocks.h"
#include "unisono/torch/ddp/comm_hooks/lossy_floats.h"
#include "unisono/torch/tensor/collectives.h"

namespace unisono {
namespace {

std::int64_t quantized_bytes(QuantizedType type, std::int64_t count) {
  return type == QuantizedType::kInt8
             ? ddp::int8_bytes(count)
             : kernels::compressed_bytes(kernels::Compression::kFloat8, count);
}

// Floats are worked on in pieces that stay in the cache: a pass over the bucket for each operation
// would take longer than sending it. Each piece has its own scales in front; the last is shorter.
constexpr std::int64_t kPiece = 128 * ddp::kInt8Block;
static_assert(kPiece % kernels::kFloat8Block == 0);

// Calls `visit(first, n, bytes)` with the elements of each piece, and where its bytes begin.
template <class Visit>
void for_each_piece(QuantizedType type, std::int64_t count, std::byte* bytes, Visit visit) {
  for (std::int64_t first = 0; first < count; first += kPiece) {
    const std::int64_t n = std::min(kPiece, count - first);
    visit(first, n, bytes);
    bytes += quantized_bytes(type, n);
  }
}

void encode(QuantizedType type, const float* floats, std::int64_t count, std::byte* bytes) {
  if (type == QuantizedType::kInt8) {
    ddp::encode_int8(floats, count, bytes);
  } else {
    kernels::compress(kernels::Compression::kFloat8, floats, count, bytes);
  }
}

void decode(QuantizedType type, const std::byte* bytes, std::int64_t count, float* floats) {
  if (type == QuantizedType::kInt8) {
    ddp::decode_int8(bytes, count, floats);
  } else {
    kernels::decompress(kernels::Compression::kFloat8, bytes, count, floats);
  }
}

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

}  // namespace

QuantizeState::QuantizeState(std::shared_ptr<ProcessGroup> group, QuantizedType type)
    : group_(std::move(group)), type_(type) {
  if (group_ == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "QuantizeState: the process group is null");
  }
}

/// One bucket's way through a pass.
class QuantizePass {
 public:
  QuantizePass(QuantizeState& state, const GradBucket& bucket)
      : state_(state), bucket_(bucket), group_(*state.group_) {
    const std::int64_t n_ranks = group_.world_size();
    const std::int64_t n_blocks = (bucket.buffer().numel() + ddp::kInt8Block - 1) / ddp::kInt8Block;
    chunk_elems_ = (n_blocks + n_ranks - 1) / n_ranks * ddp::kInt8Block;
    for (std::int64_t rank = 0; rank < n_ranks; ++rank) {
      n_bytes_.push_back(quantized_bytes(state.type_, n_elems(rank)));
      starts_.push_back(n_all_bytes_);
      n_all_bytes_ += n_bytes_.back();
    }
  }

  // Each rank gets every rank's gradients of its chunk.
  Work exchange() {
    state_.errors_.add_to(bucket_);
    error_ = bucket_.buffer().to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    sent_ = at::empty({n_all_bytes_}, at::kByte);
    for (std::int64_t rank = 0; rank < group_.world_size(); ++rank) {
      quantize(error_of(rank), n_elems(rank), place_of(sent_, rank));
    }
    const auto n_ranks = static_cast<std::size_t>(group_.world_size());
    const std::int64_t n_mine = n_bytes_[static_cast<std::size_t>(group_.rank())];
    received_ = at::empty({group_.world_size() * n_mine}, at::kByte);
    return all_to_all_async(group_,
                            sent_,
                            received_,
                            {.in_counts = n_bytes_,
                             .out_counts = std::vector<std::int64_t>(n_ranks, n_mine),
                             .timeout = bucket_.timeout(),
                             .label = bucket_.label()});
  }

  // Each rank gets every chunk's mean.
  Work spread() {
    const std::int64_t rank = group_.rank();
    const auto n_ranks = static_cast<float>(group_.world_size());
    const std::int64_t n_mine = n_bytes_[static_cast<std::size_t>(rank)];
    const at::Tensor mine = at::empty({n_mine}, at::kByte);
    std::vector<float> part(kPiece);
    std::vector<float> mean(kPiece);
    for_each_piece(
        state_.type_,
        n_elems(rank),
        bytes_of(mine),
        [&](std::int64_t first, std::int64_t n, std::byte* bytes) {
          const std::int64_t offset = bytes - bytes_of(mine);
          std::fill(mean.begin(), mean.end(), 0.0F);
          for (std::int64_t from = 0; from < group_.world_size(); ++from) {
            decode(state_.type_, bytes_of(received_) + from * n_mine + offset, n, part.data());
            ddp::add_floats(mean.data(), part.data(), n);
          }
          ddp::divide_floats(mean.data(), n_ranks, n);
          encode(state_.type_, mean.data(), n, bytes);
          decode(state_.type_, bytes, n, part.data());
          // The mean lacks it, so that one rank's gradient must have it for all.
          ddp::add_lost(error_of(rank) + first, mean.data(), part.data(), n_ranks, n);
        });
    return all_gather_async(
        group_,
        mine,
        sent_,
        {.counts = n_bytes_, .timeout = bucket_.timeout(), .label = bucket_.label() + " means"});
  }

  // Between gradients there must be zeros: a NaN would be in its block of every later pass.
  void finish() {
    std::vector<float> part(kPiece);
    const std::vector<ddp::ElementRange> ranges = ddp::gradient_ranges(bucket_);
    std::span<const ddp::ElementRange> left(ranges);
    for (std::int64_t rank = 0; rank < group_.world_size(); ++rank) {
      for_each_piece(state_.type_,
                     n_elems(rank),
                     place_of(sent_, rank),
                     [&](std::int64_t first, std::int64_t n, const std::byte* bytes) {
                       decode(state_.type_, bytes, n, part.data());
                       put(left, rank * chunk_elems_ + first, std::span(part).first(n));
                     });
    }
    state_.errors_.keep(bucket_, error_.to(bucket_.buffer().scalar_type()));
  }

 private:
  [[nodiscard]] std::int64_t n_elems(std::int64_t rank) const {
    const std::int64_t count = bucket_.buffer().numel();
    return std::clamp<std::int64_t>(count - rank * chunk_elems_, 0, chunk_elems_);
  }

  // Of the chunk of `rank`.
  [[nodiscard]] float* error_of(std::int64_t rank) const {
    return error_.data_ptr<float>() + std::min(rank * chunk_elems_, error_.numel());
  }

  // Floats become what quantizing takes from them.
  void quantize(float* floats, std::int64_t count, std::byte* bytes) const {
    std::vector<float> part(kPiece);
    for_each_piece(state_.type_, count, bytes, [&](std::int64_t first, std::int64_t n, auto* at) {
      encode(state_.type_, floats + first, n, at);
      decode(state_.type_, at, n, part.data());
      ddp::subtract_finite(floats + first, part.data(), n);
    });
  }

  // What of `floats`, which are the bucket's elements from `first` on, are gradients: those of
  // `left`, which lie in this order. Those that end before are dropped from it.
  void put(std::span<const ddp::ElementRange>& left,
           std::int64_t first,
           std::span<const float> floats) const {
    while (!left.empty() && left.front().first + left.front().count <= first) {
      left = left.subspan(1);
    }
    const std::int64_t end = first + std::ssize(floats);
    for (const ddp::ElementRange& range : left) {
      if (range.first >= end) {
        break;
      }
      const std::int64_t lo = std::max(range.first, first);
      const std::int64_t n = std::min(range.first + range.count, end) - lo;
      if (n > 0) {
        bucket_.buffer().narrow(0, lo, n).copy_(
            at::from_blob(const_cast<float*>(floats.data() + lo - first), {n}, at::kFloat));
      }
    }
  }

  [[nodiscard]] std::byte* place_of(const at::Tensor& bytes, std::int64_t rank) const {
    return bytes_of(bytes) + starts_[static_cast<std::size_t>(rank)];
  }

  QuantizeState& state_;
  GradBucket bucket_;
  ProcessGroup& group_;
  std::int64_t chunk_elems_ = 0;
  // By rank: of its chunk, quantized.
  std::vector<std::int64_t> n_bytes_;
  std::vector<std::int64_t> starts_;
  std::int64_t n_all_bytes_ = 0;
  at::Tensor sent_;
  at::Tensor received_;
  at::Tensor error_;
};

BucketWork quantize_hook(QuantizeState& state, const GradBucket& bucket) {
  if (!at::isFloatingType(bucket.buffer().scalar_type())) {
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
