#pragma once

#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "unisono/rendezvous/resolve_rendezvous.h"

#include "core_store.h"

namespace unisono::python {

/// A process's place among its ranks, and where they meet.
struct RankMeeting {
  c10::intrusive_ptr<CoreStore> store;
  int rank;
  int world_size;
  std::shared_ptr<void> presence;  ///< What the other ranks need until all have met.
};

/// Finds the place by a method of the core's, and waits for all ranks. The store's keys are of this
/// time alone: where ranks meet again at the same place, they meet in others.
///
/// Throws Error as resolve_rendezvous(), connect_store() and exchange_roster() do.
[[nodiscard]] RankMeeting meet_ranks(const rendezvous::RendezvousRequest& request);

}  // namespace unisono::python
