#pragma once

#include <chrono>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/key_space.h"
#include "unisono/rendezvous/place_note.h"

namespace unisono::rendezvous {

/// Fills in what the ranks of a job on several nodes have been told by nobody: the secret, if the
/// user has given none, and where they meet, if `assignment` does not say. Rank 0 makes the one and
/// chooses the other, and tells them in the launcher's key space; a port that it chose is kept for
/// its store while the process lives. Where nothing is missing, as on one node, nobody is asked.
///
/// The key space serves once in a process, so the answer is kept: other groups get the same.
/// Thread-safe. Says that it still waits after config.stall, twice that, and so on. Where there is
/// no key space after all, a missing secret may still be found elsewhere: a warning says why, and
/// so does key_space.problem of the result.
///
/// Throws Error: kInvalidArgument where the ranks were given different things, or there is neither
/// a place nor a key space; as KeySpace does.
[[nodiscard]] Assignment agree(const Config& config,
                               const Assignment& assignment,
                               Deadline deadline);

/// True where agree() asks the key space.
[[nodiscard]] bool needs_key_space(const Config& config, const Assignment& assignment);

/// How long a rank waits in silence, and who says that it still does.
struct Patience {
  std::chrono::milliseconds stall;
  Logger logger;
};

/// Rank 0 puts `own` into the key space; the others, whose `own` does not count, get it there.
///
/// Throws Error: kTimeout, kIncompatible where rank 0 has put something else; as KeySpace does.
[[nodiscard]] PlaceNote exchange_note(KeySpace& space,
                                      const Assignment& assignment,
                                      const PlaceNote& own,
                                      const Patience& patience,
                                      Deadline deadline);

/// `assignment` with what rank 0 has told. Throws Error(kInvalidArgument) where the user has told
/// one of the two more than the other.
[[nodiscard]] Assignment apply_note(const Config& config,
                                    const Assignment& assignment,
                                    const PlaceNote& note);

}  // namespace unisono::rendezvous
