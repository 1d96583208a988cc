#pragma once

#include <string>

#include "unisono/base/error.h"
#include "unisono/store/store.h"

namespace unisono::python {

/// The meeting that a rank joins, among the meetings with one name in a store.
struct RendezvousGeneration {
  /// Prefix of the keys of this meeting; the roster is exchanged below the prefix.
  std::string prefix;
  int rank = 0;
  bool is_known = false;  ///< True if a process has arrived with this rank before.
};

/// Finds the meeting for ranks that meet in a store that may persist, for example again after
/// destroy_process_group() or in another run of the program. Each rank counts its meetings, and the
/// counts of all ranks agree.
///
/// A second process with the same rank seems to arrive for the second time. Such a process is
/// directed to the meeting that is still open, where the roster exchange reports both processes to
/// all ranks. Aborted meetings are skipped.
[[nodiscard]] RendezvousGeneration find_generation(store::Store& store,
                                                   const std::string& name,
                                                   int rank);

/// Returns the first meeting, for stores that rank 0 serves for a single meeting. A second process
/// of rank 0 finds the store of the first process, and meets it under these keys.
[[nodiscard]] RendezvousGeneration first_generation(const std::string& name, int rank);

/// Returns the error. For a timeout, the message gets a likely reason if a process has arrived with
/// this rank before: a second process of this rank, started after all ranks had met, waits alone.
[[nodiscard]] Error explained(const Error& error, const RendezvousGeneration& time);

}  // namespace unisono::python
