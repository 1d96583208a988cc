#include "unisono/torch/ddp/features/replica_consistency.h"

#include <algorithm>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/hash.h"

namespace unisono::ddp {
namespace {

std::size_t n_bytes_of(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor.nbytes() : 0;
}

}  // namespace

void ParameterSamples::prepare() {
  if (!parameters_.empty() && !parameters_.front().tensor.is_cpu()) {
    find_pieces();
  }
}

// Finds the next part as slices of parameters, and starts to copy slices on a device to the host.
void ParameterSamples::find_pieces() {
  std::size_t n_bytes = 0;
  for (const NamedTensor& parameter : parameters_) {
    n_bytes += n_bytes_of(parameter.tensor);
  }
  const std::size_t part_bytes = std::max(kLeastBytes, (n_bytes + kParts - 1) / kParts);
  const std::size_t n_parts = std::max<std::size_t>(1, (n_bytes + part_bytes - 1) / part_bytes);
  const std::size_t begin = (n_taken_ % n_parts) * part_bytes;
  const std::size_t end = begin + part_bytes;
  pieces_.clear();
  copied_.clear();
  std::size_t offset = 0;
  for (const NamedTensor& parameter : parameters_) {
    const std::size_t size = n_bytes_of(parameter.tensor);
    const std::size_t from = std::clamp(begin, offset, offset + size) - offset;
    const std::size_t to = std::clamp(end, offset, offset + size) - offset;
    if (from < to) {
      at::Tensor memory = parameter.tensor;
      std::size_t start = from;
      if (!memory.is_cpu()) {
        memory = copies_.add(memory_of(memory).slice(
            0, static_cast<std::int64_t>(from), static_cast<std::int64_t>(to)));
        copied_.push_back(memory);
        start = 0;
      }
      const auto* const bytes = static_cast<const std::byte*>(memory.const_data_ptr());
      pieces_.emplace_back(bytes + start, to - from);
    }
    offset += size;
  }
}

std::uint16_t ParameterSamples::take() {
  if (pieces_.empty()) {
    find_pieces();
  }
  copies_.wait();
  // The seed differs in every call: different parts that collide once do not collide the next time.
  std::uint64_t hash = n_taken_;
  for (const std::span<const std::byte> piece : pieces_) {
    hash = hash_bytes(piece, hash);
  }
  skip();
  return static_cast<std::uint16_t>(hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48));
}

PassFlags flags_of(std::uint16_t fingerprint) {
  return fingerprint | (PassFlags{static_cast<std::uint16_t>(~fingerprint)} << 16);
}

bool do_fingerprints_differ(PassFlags flags) {
  return (flags & (flags >> 16) & 0xFFFF) != 0;
}

ReplicaConsistency::ReplicaConsistency(const PassContext& context)
    : context_(context),
      policy_(context.options.parameter_drift),
      samples_(context.parameters),
      is_on_(policy_ != ParameterDrift::kIgnore) {}

void ReplicaConsistency::on_synchronize() {
  if (compares()) {
    samples_.prepare();
  }
}

// The fingerprint is taken as late as in the backward pass, when the parameters still hold the
// values of the pass. Every rank takes the same part of the parameters.
PassFlags ReplicaConsistency::flags() {
  if (compares()) {
    return flags_of(samples_.take());
  }
  samples_.skip();
  return 0;
}

void ReplicaConsistency::end_pass(PassResult& result) {
  if (!do_fingerprints_differ(result.flags)) {
    return;
  }
  try {
    check_consistent(*context_.group,
                     context_.parameters,
                     "DistributedDataParallel: parameters are no longer the same on all ranks",
                     context_.options.timeout);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMismatch || policy_ == ParameterDrift::kThrow) {
      throw;
    }
    is_on_ = false;
    if (context_.group->rank() == 0) {
      base::Logger("rank 0").warning(
          std::string(error.what()) +
          "; gradients are averaged, but each rank applies them to a model of its own. Load a "
          "state on every rank, or before the module is wrapped, and make the same steps on every "
          "rank");
    }
  }
}

}  // namespace unisono::ddp
