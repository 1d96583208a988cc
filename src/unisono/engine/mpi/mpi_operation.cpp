#include "unisono/engine/mpi/mpi_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine::mpi {
namespace {

// Returns the begin of the first block with elements if the other blocks follow without gaps;
// otherwise null, also if all blocks are empty.
std::byte* begin_of_row(std::span<const Buffer> blocks) {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  for (const Buffer& block : blocks) {
    auto* const data = static_cast<std::byte*>(block.data);
    if (block.count == 0) {
      continue;
    }
    if (begin != nullptr && data != end) {
      return nullptr;
    }
    begin = begin == nullptr ? data : begin;
    end = data + block.n_bytes();
  }
  return begin;
}

}  // namespace

std::byte* Scratch::take(std::int64_t n_bytes) {
  if (n_bytes > n_bytes_) {
    memory_ = nullptr;
    n_bytes_ = 0;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(n_bytes));
    n_bytes_ = n_bytes;
  }
  return memory_.get();
}

void MpiBlocks::set(std::span<const Buffer> blocks, bool is_apart) {
  blocks_ = blocks;
  counts_.clear();
  offsets_.clear();
  std::int64_t n_elems = 0;
  std::int64_t n_bytes = 0;
  for (const Buffer& block : blocks) {
    counts_.push_back(static_cast<int>(block.count));
    offsets_.push_back(static_cast<int>(n_elems));
    n_elems += block.count;
    n_bytes += block.n_bytes();
  }
  data_ = is_apart ? nullptr : begin_of_row(blocks);
  is_copy_ = data_ == nullptr && n_bytes > 0;
  if (is_copy_) {
    data_ = scratch_.take(n_bytes);
  }
}

void MpiBlocks::set_source(std::span<const Buffer> blocks) {
  set(blocks, false);
  if (is_copy_) {
    std::byte* to = data_;
    for (const Buffer& block : blocks_) {
      to = std::copy_n(static_cast<const std::byte*>(block.data), block.n_bytes(), to);
    }
  }
}

void MpiBlocks::set_target(std::span<const Buffer> blocks, bool is_apart) {
  set(blocks, is_apart);
}

void MpiBlocks::deliver() const {
  if (is_copy_) {
    const std::byte* from = data_;
    for (const Buffer& block : blocks_) {
      std::copy_n(from, block.n_bytes(), static_cast<std::byte*>(block.data));
      from += block.n_bytes();
    }
  }
}

bool are_equal(std::span<const Buffer> blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [&](const Buffer& block) {
    return block.count == blocks.front().count;
  });
}

namespace {

using transport::OperationKind;

// Time for the native engine to find the ranks with different calls.
constexpr std::chrono::seconds kToFindWho{5};

// The switch lists every kind, so that the compiler reports a missing case.
Collective collective_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kBarrier:
      return Collective::kBarrier;
    case OperationKind::kBroadcast:
      return Collective::kBroadcast;
    case OperationKind::kAllReduce:
    case OperationKind::kAllReduceCoalesced:
      return Collective::kAllReduce;
    case OperationKind::kReduce:
      return Collective::kReduce;
    case OperationKind::kReduceScatter:
    case OperationKind::kReduceScatterCoalesced:
      return Collective::kReduceScatter;
    case OperationKind::kAllGather:
    case OperationKind::kAllGatherCoalesced:
      return Collective::kAllGather;
    case OperationKind::kGather:
      return Collective::kGather;
    case OperationKind::kScatter:
      return Collective::kScatter;
    case OperationKind::kAllToAll:
      return Collective::kAllToAll;
    case OperationKind::kNone:
    case OperationKind::kMonitoredBarrier:
      break;
  }
  throw Error(ErrorCode::kInternal, "MPI has no call for this operation");
}

// Returns whether only pairs of ranks know the sizes of blocks; equal on all ranks.
bool has_unknown_counts(const transport::Descriptor& descriptor) {
  return descriptor.count == transport::kUneven;
}

// Returns whether blocks differ in size; equal on all ranks.
bool has_own_counts(const transport::Descriptor& descriptor) {
  return has_unknown_counts(descriptor) ||
         (transport::has_blocks(descriptor.kind) && !transport::is_coalesced(descriptor.kind) &&
          transport::BlockDetail::unpack(descriptor.detail).hint != 0);
}

std::uint64_t fingerprint_of(const Operation& operation) {
  std::uint64_t hash = fnv_step(kFnvStart, operation.sequence);
  for (const std::uint64_t word :
       std::bit_cast<std::array<std::uint64_t, 3>>(operation.descriptor)) {
    hash = fnv_step(hash, word);
  }
  return hash;
}

// Throws Error(kMismatch) unless the numbers of elements are equal.
void check_count(int rank, int given, int taken) {
  if (given != taken) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format(
            "rank {} has {} elements for this rank, which takes {} from it", rank, given, taken));
  }
}

bool are_same(const Buffer& a, const Buffer& b) {
  return a.count > 0 && a.data == b.data;
}

}  // namespace

void MpiOperation::begin(const Operation& operation, std::uint32_t group) {
  operation_ = &operation;
  has_begun_ = true;
  if (!group_.has_communicator) {
    group_.communicator = group_.library->join(group_.world_ranks, group);
    group_.has_communicator = true;
  }
  prepare();
  if (group_.is_on_one_node) {
    run_or_exchange_counts();
  } else {
    compare();
  }
}

bool MpiOperation::advance() {
  if (stage_ == Stage::kDiffering) {
    if (differing_until_.has_passed()) {
      throw Error(ErrorCode::kMismatch,
                  "ranks of other nodes called another operation; see their errors");
    }
    return false;
  }
  if (!group_.library->advance(request_)) {
    return false;
  }
  switch (stage_) {
    case Stage::kComparing:
      check_compared();
      return false;
    case Stage::kExchangingCounts:
      check_counts();
      run();
      return false;
    default:
      finish();
      return true;
  }
}

void MpiOperation::start(const CollectiveCall& call, Stage stage) {
  stage_ = stage;
  request_ = group_.library->begin(group_.communicator, call);
}

// Reduces the maximum of the fingerprints, and the maximum of their complements, which is the
// complement of the minimum. The fingerprints of all ranks are equal if maximum and minimum are.
void MpiOperation::compare() {
  const std::uint64_t mine = fingerprint_of(*operation_);
  compared_ = {mine, ~mine};
  start({.collective = Collective::kAllReduce,
         .dtype = DType::kUInt64,
         .reduce = ReduceKind::kMax,
         .count = static_cast<int>(compared_.size()),
         .is_in_place = true,
         .receive = compared_.data()},
        Stage::kComparing);
}

void MpiOperation::check_compared() {
  if (compared_[0] != ~compared_[1]) {
    stage_ = Stage::kDiffering;
    differing_until_ = Deadline::after(kToFindWho);
  } else {
    run_or_exchange_counts();
  }
}

void MpiOperation::run_or_exchange_counts() {
  if (has_unknown_counts(operation_->descriptor)) {
    exchange_counts();
  } else {
    run();
  }
}

// Each giver sends its number of elements to the taker. In a gather the root takes all blocks; in a
// scatter the root gives all blocks.
void MpiOperation::exchange_counts() {
  their_counts_.assign(group_.world_ranks.size(), 0);
  const bool is_gather = call_.collective == Collective::kGather;
  start({.collective = call_.collective,
         .dtype = DType::kInt32,
         .root = call_.root,
         .count = 1,
         .send = is_gather ? &call_.count : sources_.counts().data(),
         .receive = their_counts_.data()},
        Stage::kExchangingCounts);
}

void MpiOperation::check_counts() const {
  switch (call_.collective) {
    case Collective::kScatter:
      return check_count(call_.root, their_counts_.front(), call_.count);
    case Collective::kGather:
      if (group_.rank != call_.root) {
        return;
      }
      break;
    default:
      break;
  }
  for (std::size_t rank = 0; rank < their_counts_.size(); ++rank) {
    check_count(static_cast<int>(rank), their_counts_[rank], targets_.counts()[rank]);
  }
}

void MpiOperation::prepare() {
  const transport::Descriptor& descriptor = operation_->descriptor;
  call_ = {.collective = collective_of(descriptor.kind),
           .dtype = descriptor.dtype,
           .reduce = descriptor.reduce,
           .root = descriptor.root,
           .count = static_cast<int>(operation_->in.count),
           .is_in_place = are_same(operation_->in, operation_->out),
           .has_own_counts = has_own_counts(descriptor),
           .send = operation_->in.data,
           .receive = operation_->out.data};
  sources_.set_source({});
  targets_.set_target({}, false);
  switch (call_.collective) {
    case Collective::kReduceScatter:
      return prepare_reduce_scatter();
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return prepare_blocks();
    default:
      return;
  }
}

// The MPI requires the result at the begin of the whole buffer, or in other memory.
void MpiOperation::prepare_reduce_scatter() {
  const auto rank = static_cast<std::size_t>(group_.rank);
  sources_.set_source(operation_->ins);
  own_ = {operation_->out};
  targets_.set_target(own_, are_same(operation_->ins[rank], operation_->out));
  call_.send = sources_.data();
  call_.receive = targets_.data();
  call_.is_in_place = false;
  call_.count = static_cast<int>(operation_->out.count);
  // The size of each rank's result, which equals the size of its block.
  call_.receive_counts = sources_.counts().data();
}

void MpiOperation::prepare_blocks() {
  const auto rank = static_cast<std::size_t>(group_.rank);
  if (!operation_->ins.empty()) {
    sources_.set_source(operation_->ins);
    call_.send = sources_.data();
    call_.count = static_cast<int>(operation_->ins[rank].count);
    call_.is_in_place = !sources_.is_copy() && are_same(operation_->out, operation_->ins[rank]);
  } else if (call_.collective == Collective::kScatter) {
    call_.count = static_cast<int>(operation_->out.count);
  }
  if (!operation_->outs.empty()) {
    targets_.set_target(operation_->outs, false);
    call_.receive = targets_.data();
    call_.is_in_place = !targets_.is_copy() && are_same(operation_->in, operation_->outs[rank]);
  }
  call_.send_counts = sources_.counts().data();
  call_.send_offsets = sources_.offsets().data();
  call_.receive_counts = targets_.counts().data();
  call_.receive_offsets = targets_.offsets().data();
}

void MpiOperation::run() {
  start(call_, Stage::kRunning);
}

void MpiOperation::finish() {
  has_begun_ = false;
  targets_.deliver();
  if (operation_->descriptor.reduce == ReduceKind::kAvg &&
      transport::reduces(operation_->descriptor.kind)) {
    divide();
  }
}

void MpiOperation::divide() const {
  const Buffer& out = operation_->out;
  if (out.count == 0) {
    return;
  }
  const std::array inputs{kernels::ReduceInput{.data = out.data, .is_partial = false}};
  const std::array outputs{out.data};
  kernels::reduce({.dtype = out.dtype,
                   .kind = ReduceKind::kAvg,
                   .inputs = inputs,
                   .steps = {},
                   .outputs = outputs,
                   .divisor = static_cast<int>(group_.world_ranks.size())},
                  out.count);
}

}  // namespace unisono::engine::mpi
