#pragma once

#include <string>

#include "unisono/base/error.h"
#include "unisono/store/store.h"

namespace unisono::python {

/// Which of the meetings of one name in a store a rank goes to.
struct RendezvousGeneration {
  std::string prefix;  ///< Of the keys of this meeting alone; its roster is exchanged below.
  int rank = 0;
  bool is_known = false;  ///< Whether some process has come as this rank before.
};

/// For ranks that meet in a store that may stay, again after destroy_process_group() or in another
/// run of the program: each counts how often it has come, which is as often as the others.
///
/// A second process of the same rank, which seems to come for the second time, is sent to the
/// meeting that still waits: the roster there tells all ranks of both. Meetings that were given up
/// are left out.
[[nodiscard]] RendezvousGeneration find_generation(store::Store& store,
                                                   const std::string& name,
                                                   int rank);

/// The first time, where rank 0 serves a store for each: the one that a second process of rank 0
/// finds another in.
[[nodiscard]] RendezvousGeneration first_generation(const std::string& name, int rank);

/// The same error; where it is that the others did not come, with what may be the reason: a second
/// process of this rank, come after all had met, waits alone.
[[nodiscard]] Error explained(const Error& error, const RendezvousGeneration& time);

}  // namespace unisono::python
