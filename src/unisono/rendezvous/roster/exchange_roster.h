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

struct ExchangeOptions {
  /// Number of this meeting among those that used the same store: ranks of another do not count.
  std::uint64_t generation = 0;
  /// Where the ranks were told to meet, for messages: "MASTER_ADDR=alpha, MASTER_PORT=29500".
  std::string place = {};
  FromVariables from_variables = {};  ///< Messages name these variables.
  /// The server's store, where the ranks meet in a part of it: it has a note of those whom it has
  /// turned away. Null where they meet in all of it.
  store::Store* whole_store = nullptr;
  /// Says whom it waits for after this time, twice that, and so on.
  std::chrono::milliseconds stall = std::chrono::seconds(5);
  Logger logger = Logger("rendezvous");
};

/// Tells the others of `self`, waits for all, and returns who they are.
///
/// All ranks look at the same roster, so all throw the same Error when it is wrong, and as soon as
/// the first of them can know: kInvalidArgument for doubled or impossible ranks, unequal world
/// sizes, addresses out of reach, disagreement about the fallback of a backend; kIncompatible. They
/// do so when all who have come know it, as the store may be of one of them, and so do those who
/// are late by little, at most 2 seconds later. Where a rank that had joined ends before all have
/// come, or has told so by fail_roster(), the others throw kSystem with its name at once, if the
/// store's server is ours. Throws kTimeout with the missing ranks, and what else ends a wait for
/// them; find_state() tells that somebody has left so. A fixed number of requests per rank.
[[nodiscard]] Roster exchange_roster(store::Store& store,
                                     const Member& self,
                                     Deadline deadline,
                                     const ExchangeOptions& options = {});

/// Tells those who wait in exchange_roster(), or come to it, that `self` does not take part, and
/// why: "failed: ...". Not to be called once it has joined.
void fail_roster(store::Store& store,
                 const Member& self,
                 const std::string& reason,
                 const ExchangeOptions& options = {}) noexcept;

/// True as soon as somebody has come with the rank, the world size and the release of `self`; false
/// where these differ, and at the deadline when nobody has that rank.
[[nodiscard]] bool wait_for_twin(store::Store& store,
                                 const Member& self,
                                 Deadline deadline,
                                 const ExchangeOptions& options = {});

/// What has come of a meeting.
enum class MeetingState {
  kOpen,     ///< Nobody came, or ranks wait; or were killed, which PyTorch's server does not tell.
  kGivenUp,  ///< Somebody has left, in vain or killed: it can't succeed any more.
  kOver,     ///< All have come, or somebody saw that it can't succeed.
};

/// For those who look for the meeting to join. kGivenUp may still become kOver.
[[nodiscard]] MeetingState find_state(store::Store& store, const ExchangeOptions& options = {});

}  // namespace unisono::rendezvous
