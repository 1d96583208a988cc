#include "unisono/engine/native/collectives/algorithm_choice.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/link_costs.h"
#include "unisono/base/log.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/collective/choose.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/step_plan.h"
#include "unisono/engine/native/collectives/link_measurement.h"
#include "unisono/kernels/compress.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {
namespace {

constexpr double kMicro = 1e6;

// What links cost decides nothing for less: fewest steps win.
constexpr std::int64_t kLeastBytesToLearnFrom = shm::kInlineBytes + 1;

std::string describe(const collective::Topology& topology, const LinkCosts& links) {
  std::string text;
  if (topology.local_world_size() > 1) {
    text += fmt::format(
        ", a meeting {:.2f} us, {:.1f} GB/s", links.session * kMicro, 1e-9 / links.local_byte);
  }
  if (topology.n_nodes() > 1) {
    text += fmt::format(", between nodes {:.1f} us, each further message {:.1f} us, {:.2f} GB/s",
                        links.latency * kMicro,
                        links.message * kMicro,
                        1e-9 / links.remote_byte);
  }
  return text;
}

}  // namespace

collective::Receivers receivers_of(const Operation& operation) {
  using Kind = collective::Receivers::Kind;
  switch (operation.descriptor.kind) {
    case transport::OperationKind::kReduce:
      return {.kind = Kind::kRoot, .root = operation.descriptor.root};
    case transport::OperationKind::kReduceScatter:
    case transport::OperationKind::kReduceScatterCoalesced:
      return {.kind = Kind::kOwner};
    default:
      return {.kind = Kind::kAll};
  }
}

std::int64_t contribution_bytes(const Operation& operation) {
  return operation.descriptor.count *
         static_cast<std::int64_t>(size_of(operation.descriptor.dtype));
}

kernels::Compression compression_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kTwoShotBFloat16:
      return kernels::Compression::kBFloat16;
    case Algorithm::kTwoShotFloat8:
      return kernels::Compression::kFloat8;
    default:
      return kernels::Compression::kNone;
  }
}

AlgorithmChoice::AlgorithmChoice(const collective::Topology& topology,
                                 const health::RankStatus& ranks,
                                 const std::optional<LinkCosts>& links)
    : topology_(topology), ranks_(ranks), given_(links), chooser_(topology, {}, shm::kSlotBytes) {}

void AlgorithmChoice::check(const Operation& operation) const {
  using Kind = collective::Receivers::Kind;
  const transport::Descriptor& descriptor = operation.descriptor;
  const char* const algorithm = to_string(descriptor.algorithm);
  const Kind receivers = receivers_of(operation).kind;
  // Between nodes a rank that is owed one block only has no use for the others.
  if (descriptor.algorithm == Algorithm::kOneShot && receivers == Kind::kOwner &&
      topology_.n_nodes() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("algorithm {} is for {} on one node, and the group has {}; use auto or "
                            "two_shot",
                            algorithm,
                            to_string(descriptor.kind),
                            topology_.n_nodes()));
  }
  const std::int64_t n_bytes = contribution_bytes(operation);
  if (descriptor.algorithm == Algorithm::kOneShot && n_bytes > shm::kSlotBytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "algorithm {} takes at most {} bytes, not {}", algorithm, shm::kSlotBytes, n_bytes));
  }
  const bool is_compressed = compression_of(descriptor.algorithm) != kernels::Compression::kNone;
  if (is_compressed && !is_compressible(descriptor.dtype, descriptor.reduce)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("algorithm {} is for sum, avg and premul_sum of f32, f16 and bf16, "
                            "not for {} of {}",
                            algorithm,
                            to_string(descriptor.reduce),
                            to_string(descriptor.dtype)));
  }
  if ((is_compressed || collective::goes_in_steps(descriptor.algorithm)) &&
      receivers != Kind::kAll) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("algorithm {} is for all_reduce; use auto, one_shot or two_shot", algorithm));
  }
}

Algorithm AlgorithmChoice::choose(const Operation& operation) {
  if (operation.descriptor.algorithm != Algorithm::kAuto) {
    return operation.descriptor.algorithm;
  }
  const collective::Receivers receivers = receivers_of(operation);
  const Algorithm algorithm = cheapest(receivers.kind, contribution_bytes(operation));
  if (topology_.rank() == 0 && ranks_.logger().is_enabled(LogLevel::kDebug)) [[unlikely]] {
    explain(operation, receivers);
  }
  return algorithm;
}

Algorithm AlgorithmChoice::cheapest(collective::Receivers::Kind receivers, std::int64_t n_bytes) {
  if (last_.n_bytes != n_bytes || last_.receivers != receivers) {
    last_ = {.receivers = receivers,
             .n_bytes = n_bytes,
             .algorithm = chooser_.choose(receivers, n_bytes)};
  }
  return last_.algorithm;
}

void AlgorithmChoice::explain(const Operation& operation, const collective::Receivers& receivers) {
  const std::int64_t n_bytes = contribution_bytes(operation);
  const auto magnitude = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n_bytes)));
  if (!explained_.emplace(receivers.kind, magnitude).second) {
    return;
  }
  std::string text;
  for (const auto& [algorithm, seconds] : chooser_.estimates(receivers.kind, n_bytes)) {
    text += fmt::format(
        "{}{} {:.1f} us", text.empty() ? "" : ", ", to_string(algorithm), seconds * kMicro);
  }
  ranks_.logger().debug(fmt::format(
      "{} {}, {} bytes: estimated {}; the first is taken; links: {}{}",
      ranks_.prefix(),
      transport::describe(operation.descriptor, operation.sequence, {}, ranks_.job_ranks()),
      n_bytes,
      text,
      source_,
      describe(topology_, agreed_.value_or(LinkCosts{}))));
}

void AlgorithmChoice::learn(OperationContext& context) {
  const bool is_worth_it = context.operation.descriptor.algorithm == Algorithm::kAuto &&
                           contribution_bytes(context.operation) >= kLeastBytesToLearnFrom;
  if (agreed_ || !is_worth_it || !collective::Chooser::depends_on_links(topology_)) {
    return;
  }
  agreed_ = agree_on_links(context, given_);
  source_ = agreed_ ? "given" : "measured";
  if (!agreed_) {
    agreed_ = agree_on_links(context, measure_links(context));
  }
  UNISONO_CHECK(agreed_.has_value(), "ranks agree on costs that each has measured");
  chooser_ = collective::Chooser(topology_, *agreed_, shm::kSlotBytes);
  last_ = {};
  explained_.clear();
}

}  // namespace unisono::engine
