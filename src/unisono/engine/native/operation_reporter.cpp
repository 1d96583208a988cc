#include "unisono/engine/native/operation_reporter.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/operation.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/tcp/connection.h"

namespace unisono::engine {

Error OperationReporter::timed_out(std::span<const int> late_ranks) const {
  parts_.health.note_late(operation_.sequence, late_ranks);
  return {ErrorCode::kTimeout,
          fmt::format("timed out waiting for {}", parts_.status.describe_overdue(late_ranks))};
}

std::optional<Error> OperationReporter::departed(std::span<const int> late_ranks) const {
  const std::optional<int> rank = parts_.ranks.find_departed(late_ranks);
  if (!rank) {
    return std::nullopt;
  }
  return Error(ErrorCode::kPeerLost, parts_.ranks.describe_departed(*rank));
}

// On this node the headers say what each called.
void OperationReporter::look_into(std::span<const int> late_ranks) const {
  parts_.health.note_late(operation_.sequence, late_ranks);
  const collective::Topology& topology = parts_.transports.topology;
  if (topology.n_nodes() == 1) {
    return;
  }
  for (tcp::Connection* const connection : connections_.peers()) {
    connection->look_for_abort();
  }
  parts_.diagnostics.tell_calls(calls_);
  for (const int rank : late_ranks) {
    if (topology.node_of(rank) == topology.node()) {
      continue;
    }
    for (const health::CallRecord& call : parts_.diagnostics.ask_calls(rank)) {
      if (call.sequence == operation_.sequence && call.descriptor != operation_.descriptor) {
        // It may wait for another rank, which knows nothing of it.
        parts_.status.warn(rank, complete(mismatch(rank, call)));
        throw mismatch(rank, call);
      }
    }
  }
}

void OperationReporter::show(Deadline::Clock::time_point since,
                             std::span<const int> late_ranks) const {
  parts_.health.show_wait(id_,
                          {.since = since,
                           .seen = {},
                           .operation = describe_operation(),
                           .late = {late_ranks.begin(), late_ranks.end()}});
}

void OperationReporter::stalled(std::chrono::milliseconds waited,
                                std::span<const int> late_ranks) const {
  parts_.status.report_stall(
      describe_operation(), waited, parts_.ranks.describe_late(late_ranks), late_ranks);
  parts_.health.look_for_cycle(id_);
}

Error OperationReporter::complete(const Error& error) const {
  return transport::with_call(parts_.ranks.prefix(), describe_operation(), error);
}

Error OperationReporter::mismatch(int rank, const health::CallRecord& call) const {
  return transport::mismatch({.who = parts_.ranks.describe(rank),
                              .sequence = call.sequence,
                              .descriptor = call.descriptor},
                             {.who = "this rank",
                              .sequence = operation_.sequence,
                              .descriptor = operation_.descriptor,
                              .counts = transport::counts_of(agreed_blocks(operation_))},
                             parts_.ranks.job_ranks());
}

std::string OperationReporter::describe_operation() const {
  const std::string text =
      transport::describe(operation_.descriptor, operation_.sequence, {}, parts_.ranks.job_ranks());
  return operation_.label.empty() ? text : fmt::format("{} of {}", text, operation_.label);
}

}  // namespace unisono::engine
