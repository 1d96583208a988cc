#include "meet_ranks.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/rendezvous/find_place.h"
#include "unisono/rendezvous/meet.h"
#include "unisono/store/store.h"

#include "core_store.h"

namespace unisono::python {
namespace {

// False where the store is one that rank 0 was about to end.
bool wait_for_rank_0(store::Store& store,
                     const rendezvous::Place& place,
                     const std::string& key,
                     bool was_here_before) {
  const rendezvous::Assignment& assignment = place.gathered.assignment;
  try {
    if (assignment.rank == 0) {
      store.set(key, "");
    } else {
      store.wait(std::span(&key, 1), place.deadline);
    }
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kPeerLost && was_here_before && !assignment.uses_agent_store &&
        !place.deadline.has_passed()) {
      return false;
    }
    throw Error(error.code(),
                "rendezvous: rank " + std::to_string(assignment.rank) + " of " +
                    std::to_string(assignment.world_size) +
                    " has found the store, but rank 0 has not come there: " + error.what());
  }
}

}  // namespace

RankMeeting meet_ranks(const rendezvous::PlaceRequest& request) {
  const rendezvous::Place place = rendezvous::find_place(request);
  const rendezvous::Assignment& assignment = place.gathered.assignment;
  while (true) {
    rendezvous::Meeting meeting = rendezvous::meet(place.config, assignment, place.deadline);
    // Each rank counts how often it has come, which is as often as the others.
    const std::string rank = std::to_string(assignment.rank);
    const std::int64_t time = meeting.store->add("unisono/times/" + rank, 1);
    const std::string part = "unisono/time " + std::to_string(time);
    if (wait_for_rank_0(*meeting.store, place, part, time > 1)) {
      return {.store = c10::make_intrusive<CoreStore>(in_part(access_of(std::move(meeting)), part),
                                                      place.timeout),
              .rank = assignment.rank,
              .world_size = assignment.world_size,
              .presence = place.gathered.presence};
    }
  }
}

}  // namespace unisono::python
