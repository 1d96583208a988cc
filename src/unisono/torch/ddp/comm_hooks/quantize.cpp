#include "unisono/torch/ddp/comm_hooks/quantize.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/kernels/compress.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/comm_hooks/gradient_views.h"
#include "unisono/torch/ddp/comm_hooks/int8_blocks.h"
#include "unisono/torch/tensor/collectives.h"

namespace unisono {
namespace {

std::int64_t quantized_bytes(QuantizedType type, std::int64_t count) {
  return type == QuantizedType::kInt8
             ? ddp::int8_bytes(count)
             : kernels::compressed_bytes(kernels::Compression::kFloat8, count);
}

void encode(QuantizedType type, const at::Tensor& floats, std::byte* bytes) {
  if (type == QuantizedType::kInt8) {
    ddp::encode_int8(floats.const_data_ptr<float>(), floats.numel(), bytes);
  } else {
    kernels::compress(
        kernels::Compression::kFloat8, floats.const_data_ptr(), floats.numel(), bytes);
  }
}

void decode(QuantizedType type, const std::byte* bytes, const at::Tensor& floats) {
  if (type == QuantizedType::kInt8) {
    ddp::decode_int8(bytes, floats.numel(), floats.data_ptr<float>());
  } else {
    kernels::decompress(kernels::Compression::kFloat8, bytes, floats.numel(), floats.data_ptr());
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
    const at::Tensor floats = bucket_.buffer().to(at::kFloat);
    sent_ = at::empty({n_all_bytes_}, at::kByte);
    error_ = at::empty_like(floats);
    for (std::int64_t rank = 0; rank < group_.world_size(); ++rank) {
      encode(state_.type_, chunk_of(floats, rank), place_of(sent_, rank));
      decode(state_.type_, place_of(sent_, rank), chunk_of(error_, rank));
    }
    error_.neg_().add_(floats);
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
    const at::Tensor mean = at::zeros({n_elems(rank)}, at::kFloat);
    const at::Tensor part = at::empty_like(mean);
    const std::int64_t n_mine = n_bytes_[static_cast<std::size_t>(rank)];
    for (std::int64_t from = 0; from < group_.world_size(); ++from) {
      decode(state_.type_, bytes_of(received_) + from * n_mine, part);
      mean.add_(part);
    }
    mean.div_(group_.world_size());
    const at::Tensor mine = at::empty({n_mine}, at::kByte);
    encode(state_.type_, mean, bytes_of(mine));
    decode(state_.type_, bytes_of(mine), part);
    // The mean lacks it, so that one rank's gradient must have it for all.
    chunk_of(error_, rank).add_(mean.sub_(part), group_.world_size());
    return all_gather_async(
        group_,
        mine,
        sent_,
        {.counts = n_bytes_, .timeout = bucket_.timeout(), .label = bucket_.label() + " means"});
  }

  void finish() {
    const at::Tensor result = at::empty_like(error_);
    for (std::int64_t rank = 0; rank < group_.world_size(); ++rank) {
      decode(state_.type_, place_of(sent_, rank), chunk_of(result, rank));
    }
    // Between gradients there must be zeros: a NaN would be in its block of every later pass.
    const std::vector<at::Tensor> results = ddp::gradient_views(bucket_, result);
    for (std::size_t i = 0; i < results.size(); ++i) {
      bucket_.gradients()[i].copy_(results[i]);
    }
    state_.errors_.keep(bucket_, error_.to(bucket_.buffer().scalar_type()));
  }

 private:
  [[nodiscard]] std::int64_t n_elems(std::int64_t rank) const {
    const std::int64_t count = bucket_.buffer().numel();
    return std::clamp<std::int64_t>(count - rank * chunk_elems_, 0, chunk_elems_);
  }

  [[nodiscard]] at::Tensor chunk_of(const at::Tensor& floats, std::int64_t rank) const {
    const std::int64_t start = std::min(rank * chunk_elems_, floats.numel());
    return floats.narrow(0, start, n_elems(rank));
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
