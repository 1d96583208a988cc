#pragma once

#include <chrono>
#include <cstdint>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/store/store.h"

namespace unisono::rendezvous {

struct ExchangeOptions {
  /// Number of this meeting among those that used the same store: ranks of another do not count.
  std::uint64_t generation = 0;
  /// Says whom it waits for after this time, twice that, and so on.
  std::chrono::milliseconds stall = std::chrono::seconds(5);
  Logger logger = Logger("rendezvous");
};

/// Tells the others of `self`, waits for all, and returns who they are.
///
/// All ranks look at the same roster, so all throw the same Error when it is wrong, and as soon as
/// the first of them can know: kInvalidArgument for doubled or impossible ranks, unequal world
/// sizes, addresses out of reach; kIncompatible. Throws kTimeout with the missing ranks. A fixed
/// number of requests per rank.
[[nodiscard]] Roster exchange_roster(store::Store& store,
                                     const Member& self,
                                     Deadline deadline,
                                     const ExchangeOptions& options = {});

}  // namespace unisono::rendezvous
