#include "unisono/engine/native/operation_reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "unisono/collective/topology.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/failure.h"

namespace unisono::engine {

Error OperationReporter::timed_out(std::span<const int> late_ranks) const {
  parts_.group.events.note_late(operation_.sequence, late_ranks);
  return {
      ErrorCode::kTimeout,
      fmt::format("timed out waiting for {}", parts_.group.events.describe_overdue(late_ranks))};
}

std::optional<Error> OperationReporter::departed(std::span<const int> late_ranks) const {
  const std::optional<int> rank = parts_.group.find_departed(late_ranks);
  if (!rank) {
    return std::nullopt;
  }
  return Error(ErrorCode::kPeerLost, parts_.group.events.describe_departed(*rank));
}

// Within the node the headers show each rank's call. Calls of other nodes are compared here.
void OperationReporter::look_into(std::span<const int> late_ranks) const {
  parts_.group.events.note_late(operation_.sequence, late_ranks);
  const collective::Topology& topology = parts_.group.topology;
  if (topology.n_nodes() == 1) {
    return;
  }
  for (tcp::Connection* const connection : connections_.peers()) {
    connection->look_for_abort();
  }
  parts_.group.events.publish_calls(calls_);
  for (const int rank : late_ranks) {
    if (topology.node_of(rank) == topology.node()) {
      continue;
    }
    for (const transport::CallRecord& call : parts_.group.events.calls_of(rank)) {
      if (call.sequence == operation_.sequence && call.descriptor != operation_.descriptor) {
        // The rank may wait for a third rank, which has no mismatch to report.
        parts_.group.events.warn(rank, complete(mismatch(rank, call)));
        throw mismatch(rank, call);
      }
    }
  }
}

void OperationReporter::show(Deadline::Clock::time_point since,
                             std::span<const int> late_ranks) const {
  parts_.group.events.show_wait(id_,
                                {.since = since,
                                 .seen = {},
                                 .operation = describe_operation(),
                                 .late = {late_ranks.begin(), late_ranks.end()}});
}

void OperationReporter::stalled(std::chrono::milliseconds waited,
                                std::span<const int> late_ranks) const {
  parts_.group.events.report_stall(
      describe_operation(), waited, parts_.group.events.describe_late(late_ranks), late_ranks);
  parts_.group.events.search_deadlock(id_);
}

Error OperationReporter::complete(const Error& error) const {
  return transport::with_call(parts_.group.prefix, describe_operation(), error);
}

Error OperationReporter::mismatch(int rank, const transport::CallRecord& call) const {
  return transport::mismatch({.who = parts_.group.describe(rank),
                              .sequence = call.sequence,
                              .descriptor = call.descriptor},
                             {.who = "this rank",
                              .sequence = operation_.sequence,
                              .descriptor = operation_.descriptor,
                              .counts = transport::counts_of(agreed_blocks(operation_))},
                             parts_.group.job_ranks);
}

std::string OperationReporter::describe_operation() const {
  const std::string text =
      transport::describe(operation_.descriptor, operation_.sequence, {}, parts_.group.job_ranks);
  return operation_.label.empty() ? text : fmt::format("{} of {}", text, operation_.label);
}

namespace {

using Clock = Deadline::Clock;
using transport::Look;

// Polls between two checks of the wait. A check reads the clock and the peers' headers.
constexpr int kLooksPerCheck = 64;

// A wait for ranks of other nodes does not sleep during this time.
constexpr std::chrono::milliseconds kAwake{10};

// A nap lasts this fraction of the wait so far, and at most kLongestNap.
constexpr int kNapPart = 64;
constexpr std::chrono::microseconds kLongestNap{1000};

// Data that a rank sent before it left may be in flight for this time.
constexpr std::chrono::seconds kStillOnItsWay{2};

// Returns whether the rank may still have to do a part of the operation. The progress of a rank of
// another node is unknown here, so such a rank counts until it has left.
bool is_late(const OperationContext& context, int rank) {
  if (context.topology.node_of(rank) != context.topology.node()) {
    return !context.group.find_departed(std::array{rank});
  }
  const transport::RankProgress progress =
      context.control_block.rank_progress(context.topology.local_rank_of(rank));
  const std::uint64_t sequence = context.operation.sequence;
  return progress.sequence < sequence || (progress.sequence == sequence && !progress.has_finished);
}

}  // namespace

void carry_out_supervised(SupervisedOperation& supervised,
                          OperationContext& context,
                          std::uint32_t group) {
  context.enter();
  if (supervised.meets_all()) {
    context.meet_other_nodes();
  }
  supervised.begin(context.operation, group);
  const Clock::time_point begin = Clock::now();
  const auto find_late_ranks = [&] {
    const bool counts_all = Clock::now() - begin >= kStillOnItsWay;
    std::vector<int> late;
    for (int rank = 0; rank < context.topology.world_size(); ++rank) {
      if (rank != context.topology.rank() && (counts_all || is_late(context, rank))) {
        late.push_back(rank);
      }
    }
    return late;
  };
  const bool has_other_nodes = context.topology.n_nodes() > 1;
  const auto look = [&] { return supervised.advance() ? Look::kDone : Look::kNothing; };
  const auto check_and_nap = [&] {
    context.wait_monitor.check(find_late_ranks);
    if (const auto waited = Clock::now() - begin; has_other_nodes && waited >= kAwake) {
      std::this_thread::sleep_for(std::min<Clock::duration>(waited / kNapPart, kLongestNap));
    }
    return Look::kProgress;
  };
  transport::wait(
      {.n_spins = context.mode.n_spins, .n_yields = kLooksPerCheck}, nullptr, look, check_and_nap);
  context.wait_monitor.note_progress();
}

}  // namespace unisono::engine
