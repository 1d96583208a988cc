#include "meet_ranks.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/exchange_roster.h"
#include "unisono/rendezvous/find_place.h"
#include "unisono/rendezvous/meet.h"
#include "unisono/rendezvous/node_id.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/store/prefix_store.h"

#include "core_store.h"
#include "meeting_time.h"

namespace unisono::python {
namespace {

constexpr const char* kTimes = "unisono";

rendezvous::Member describe_self(const rendezvous::Assignment& assignment) {
  // Nobody connects to anybody by this roster, so all give the same address.
  return {.rank = assignment.rank,
          .world_size = assignment.world_size,
          .host = rendezvous::host_name(),
          .pid = ::getpid(),
          .node = "",
          .address = "127.0.0.1",
          .port = 0,
          .endpoint = ""};
}

void exchange_roster(const rendezvous::Meeting& meeting,
                     const MeetingTime& time,
                     const rendezvous::Place& place) {
  const rendezvous::Assignment& assignment = place.gathered.assignment;
  const std::string name = "rank " + std::to_string(assignment.rank);
  store::PrefixStore part(time.prefix, meeting.store);
  try {
    (void)rendezvous::exchange_roster(part,
                                      describe_self(assignment),
                                      place.deadline,
                                      {.place = rendezvous::describe_place(meeting.assignment),
                                       .from_variables = meeting.assignment.from_variables,
                                       .whole_store = meeting.store.get(),
                                       .stall = place.config.stall,
                                       .logger = Logger(name, place.config.log_level)});
  } catch (const Error& error) {
    throw Error(explained(error, time));
  }
}

// Whether this process has met others before.
std::atomic<bool> has_met{false};

// Whether the store is one that rank 0 was about to end.
bool was_an_earlier_store(const rendezvous::Place& place, const MeetingTime& time, ErrorCode code) {
  return code == ErrorCode::kPeerLost && (time.is_known || has_met) &&
         place.gathered.assignment.rank != 0 && !place.gathered.assignment.uses_agent_store &&
         !place.deadline.has_passed();
}

// The prefix of the ranks' keys; nothing where they meet elsewhere.
std::optional<std::string> meet_others(rendezvous::Meeting& meeting,
                                       const rendezvous::Place& place) {
  MeetingTime time;
  try {
    const int rank = place.gathered.assignment.rank;
    time = meeting.is_second_rank_0 ? first_time(kTimes, rank)
                                    : find_time(*meeting.store, kTimes, rank);
    exchange_roster(meeting, time, place);
    return time.prefix;
  } catch (const Error& error) {
    if (was_an_earlier_store(place, time, error.code())) {
      return std::nullopt;
    }
    if (error.code() != ErrorCode::kInterrupted) {
      rendezvous::leave_after_failure(meeting);
    }
    throw;
  }
}

}  // namespace

RankMeeting meet_ranks(const rendezvous::PlaceRequest& request) {
  rendezvous::PlaceRequest ours = request;
  ours.keys.part = first_time(kTimes, 0).prefix;
  const rendezvous::Place place = rendezvous::find_place(ours);
  const rendezvous::Assignment& assignment = place.gathered.assignment;
  while (true) {
    rendezvous::Meeting meeting =
        rendezvous::meet(place.config, assignment, place.deadline, ours.keys);
    if (const std::optional<std::string> prefix = meet_others(meeting, place)) {
      has_met = true;
      return {.store = c10::make_intrusive<CoreStore>(
                  in_part(access_of(std::move(meeting)), *prefix), place.timeout),
              .rank = assignment.rank,
              .world_size = assignment.world_size,
              .presence = place.gathered.presence};
    }
  }
}

}  // namespace unisono::python
