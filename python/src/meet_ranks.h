#pragma once

#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "unisono/rendezvous/resolve_rendezvous.h"

#include "core_store.h"

namespace unisono::python {

/// Rank and world size of this process, and the store in which the ranks have met.
struct RankMeeting {
  c10::intrusive_ptr<CoreStore> store;
  int rank;
  int world_size;
  /// Keeps alive the objects that other ranks need until all ranks have met.
  std::shared_ptr<void> presence;
};

/// Determines the rank by a rendezvous method of the core, and waits for all ranks. The store's
/// keys belong to this meeting only; a later meeting at the same place uses other keys.
///
/// Throws the errors of resolve_rendezvous(), connect_store() and exchange_roster().
[[nodiscard]] RankMeeting meet_ranks(const rendezvous::RendezvousRequest& request);

}  // namespace unisono::python
