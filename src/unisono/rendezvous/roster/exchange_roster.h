#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/store/store.h"

namespace unisono::rendezvous {

/// Options of a meeting.
struct ExchangeOptions {
  /// Number of this meeting among the meetings that use the same store. Ranks of other meetings are
  /// ignored.
  std::uint64_t generation = 0;
  /// The meeting point of the ranks, for messages: "MASTER_ADDR=alpha, MASTER_PORT=29500".
  std::string place = {};
  FromVariables from_variables = {};  ///< Error messages name these variables.
  /// The server's whole store if the ranks meet in a section: contains the record of rejected
  /// connections. Null if the ranks meet in the whole store.
  store::Store* whole_store = nullptr;
  /// A waiting rank logs the missing ranks after this time, after twice that time, and so on.
  std::chrono::milliseconds stall = std::chrono::seconds(5);
  base::Logger logger = base::Logger("rendezvous");
};

/// Publishes `self`, waits for all ranks, and returns the members.
///
/// All ranks check the same roster, so all throw the same error, as soon as the first rank can
/// detect the problem: Error(kInvalidArgument) for duplicate or impossible ranks, unequal world
/// sizes, unreachable addresses, or disagreement about the fallback of a backend;
/// Error(kIncompatible) for different versions. Because the store may belong to one of the ranks,
/// each rank throws only after all ranks that have joined have read the error, and ranks that are
/// slightly late can do so too, at most 2 seconds later.
///
/// If a rank that had joined ends before all have joined, or has called fail_roster(), the other
/// ranks throw Error(kSystem) with that rank's name at once, provided that the store has a Unisono
/// server. Throws Error(kTimeout) with the missing ranks, and the errors of an interrupted wait;
/// find_state() shows that a rank has left in this way.
///
/// Makes a fixed number of requests per rank.
[[nodiscard]] Roster exchange_roster(store::Store& store,
                                     const RosterMember& self,
                                     Deadline deadline,
                                     const ExchangeOptions& options = {});

/// Makes current and later calls of exchange_roster() on other ranks fail: `self` does not take
/// part. `reason` has the form "failed: ...". Must not be called once this rank has joined.
void fail_roster(store::Store& store,
                 const RosterMember& self,
                 const std::string& reason,
                 const ExchangeOptions& options = {}) noexcept;

/// Returns true as soon as a process has joined with the rank, world size and release of `self`.
/// Returns false if world size or release differ, or if no process with that rank has joined by the
/// deadline.
[[nodiscard]] bool wait_for_twin(store::Store& store,
                                 const RosterMember& self,
                                 Deadline deadline,
                                 const ExchangeOptions& options = {});

/// State of a meeting.
enum class MeetingState {
  /// No rank has joined, or ranks wait, or were killed (PyTorch's server does not report this).
  kOpen,
  /// A rank has left after a timeout, has failed or was killed: the meeting cannot succeed.
  kGivenUp,
  kOver,  ///< All ranks have joined, or a rank has detected that the meeting cannot succeed.
};

/// For processes that search for the meeting to join. kGivenUp may still change to kOver.
[[nodiscard]] MeetingState find_state(store::Store& store, const ExchangeOptions& options = {});

}  // namespace unisono::rendezvous
