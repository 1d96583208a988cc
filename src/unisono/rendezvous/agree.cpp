#include "unisono/rendezvous/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/random_hex.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/port_reservation.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/data_listener.h"
#include "unisono/rendezvous/interface_choice.h"
#include "unisono/rendezvous/key_space.h"
#include "unisono/rendezvous/key_space_access.h"
#include "unisono/rendezvous/loaded_mpi.h"
#include "unisono/rendezvous/place_note.h"
#include "unisono/rendezvous/pmi_key_space.h"
#include "unisono/rendezvous/pmix_key_space.h"
#include "unisono/rendezvous/secret.h"

namespace unisono::rendezvous {
namespace {

constexpr const char* kKey = "unisono-rendezvous";
constexpr std::size_t kSecretBytes = 32;

// A connection that is not the launcher's after all would answer nothing.
constexpr std::chrono::seconds kOpenTimeout{20};

std::string describe(const Assignment& assignment) {
  return fmt::format("the launcher's key space ({})", to_string(assignment.key_space.kind));
}

// What this process has found out by the key space, once for all its groups.
struct Outcome {
  Mutex mutex;
  bool is_known UNISONO_GUARDED_BY(mutex) = false;
  std::optional<PlaceNote> note UNISONO_GUARDED_BY(mutex);
  std::string problem UNISONO_GUARDED_BY(mutex);  // Why there is no note.
  std::optional<net::PortReservation> port UNISONO_GUARDED_BY(mutex);
};

// Never destroyed: other threads may make a group until the very end of the process.
Outcome& outcome() {
  static Outcome* const instance = new Outcome;
  return *instance;
}

std::unique_ptr<KeySpace> open(const Assignment& assignment, Deadline deadline) {
  const MpiState mpi = mpi_state();
  if (assignment.key_space.kind == KeySpaceKind::kPmix) {
    return std::make_unique<PmixKeySpace>(mpi);
  }
  return std::make_unique<PmiKeySpace>(
      assignment.key_space.pmi_fd, mpi, earlier(deadline, Deadline::after(kOpenTimeout)));
}

// What rank 0 has to tell.
PlaceNote make_note(const Config& config,
                    const Assignment& assignment,
                    const Logger& logger,
                    std::optional<net::PortReservation>& port) {
  PlaceNote note;
  if (!is_secret_given(config)) {
    note.secret = random_hex(kSecretBytes);
  }
  if (assignment.master_addr.empty()) {
    const net::Address address =
        choose_own_address(config.interface, net::interfaces(), net::default_route_address());
    if (address.is_loopback()) {
      logger.warning(
          "rendezvous: rank 0's node has no network, so that other nodes can't reach it; set "
          "MASTER_ADDR, or UNISONO_INTERFACE, for all ranks");
    }
    note.address = address.ip();
    note.port = assignment.master_port;
    if (note.port == 0) {
      port.emplace(reserve_store_port(config, address.family()));
      note.port = port->port();
    }
  }
  return note;
}

Error in_key_space(const Assignment& assignment, const Error& error) {
  return {error.code(),
          fmt::format("rendezvous: rank {} of {}, in {}: {}. Ranks for which UNISONO_SECRET and "
                      "MASTER_ADDR are set do without it",
                      assignment.rank,
                      assignment.world_size,
                      describe(assignment),
                      error.what())};
}

void find_out(const Config& config,
              const Assignment& assignment,
              const Logger& logger,
              Deadline deadline,
              Outcome& state) UNISONO_REQUIRES(state.mutex) {
  state.is_known = true;
  std::unique_ptr<KeySpace> space;
  try {
    space = open(assignment, deadline);
  } catch (const Error& error) {
    state.problem = fmt::format("{} can't be used: {}", describe(assignment), error.what());
    return;
  }
  try {
    const PlaceNote own =
        assignment.rank == 0 ? make_note(config, assignment, logger, state.port) : PlaceNote{};
    state.note =
        exchange_note(*space, assignment, own, {.stall = config.stall, .logger = logger}, deadline);
    space->leave();
  } catch (const Error& error) {
    state.problem = fmt::format("{} has failed before: {}", describe(assignment), error.what());
    throw in_key_space(assignment, error);
  }
}

Assignment without_note(const Assignment& assignment,
                        const std::string& problem,
                        const Logger& logger) {
  if (assignment.master_addr.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rendezvous: rank {} does not know where the ranks meet: {}. Set "
                            "MASTER_ADDR for all ranks to the name of rank 0's node, MASTER_PORT "
                            "to a port that is free there, and UNISONO_SECRET",
                            assignment.rank,
                            problem));
  }
  logger.warning("rendezvous: no secret from the launcher: " + problem);
  Assignment result = assignment;
  result.key_space.problem = problem;
  return result;
}

}  // namespace

bool needs_key_space(const Config& config, const Assignment& assignment) {
  return assignment.key_space.kind != KeySpaceKind::kNone &&
         (assignment.master_addr.empty() || !is_secret_given(config));
}

PlaceNote exchange_note(KeySpace& space,
                        const Assignment& assignment,
                        const PlaceNote& own,
                        const Patience& patience,
                        Deadline deadline) {
  if (assignment.rank == 0) {
    space.put(kKey, encode_note(own), deadline);
  }
  const auto start = Deadline::Clock::now();
  auto stall = patience.stall;
  while (!space.fence(earlier(deadline, Deadline::at(start + stall)))) {
    const std::chrono::duration<double> spent = Deadline::Clock::now() - start;
    const std::string message = fmt::format(
        "waited {:.1f} s for the other ranks to come to {}; ranks do so which are not told "
        "UNISONO_SECRET and MASTER_ADDR: tell them to all ranks or to none",
        spent.count(),
        describe(assignment));
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout, message);
    }
    patience.logger.warning(fmt::format("rendezvous: rank {} has {}", assignment.rank, message));
    stall *= 2;
  }
  if (assignment.rank == 0) {
    return own;
  }
  const std::optional<PlaceNote> note = decode_note(space.get(kKey, deadline));
  if (!note) {
    throw Error(ErrorCode::kIncompatible,
                "what rank 0 has left there is not for this release of Unisono: all ranks need "
                "the same one");
  }
  return *note;
}

Assignment apply_note(const Config& config, const Assignment& assignment, const PlaceNote& note) {
  const auto differ = [&](const char* here, const char* what, const char* there) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("rendezvous: rank {} has {} {}, and rank 0 has {}: set it for all "
                             "ranks or for none (mpirun -x NAME or -genvlist NAME passes it on)",
                             assignment.rank,
                             here,
                             what,
                             there));
  };
  constexpr const char* kSecret = "UNISONO_SECRET or UNISONO_SECRET_FILE";
  if (is_secret_given(config) != note.secret.empty()) {
    throw note.secret.empty() ? differ("no", kSecret, "one")
                              : differ("been given", kSecret, "none");
  }
  if (assignment.master_addr.empty() == note.address.empty()) {
    throw note.address.empty() ? differ("no", "MASTER_ADDR", "one")
                               : differ("been given", "MASTER_ADDR", "none");
  }
  Assignment result = assignment;
  result.secret = note.secret;
  if (result.master_addr.empty()) {
    result.master_addr = note.address;
    result.master_port = note.port;
  }
  return result;
}

Assignment agree(const Config& config, const Assignment& assignment, Deadline deadline) {
  if (!needs_key_space(config, assignment)) {
    return assignment;
  }
  const Logger logger(fmt::format("rank {}", assignment.rank), config.log_level);
  Outcome& state = outcome();
  // Held while this process waits for the launcher: a second group needs the answer, too.
  const MutexLock lock(state.mutex);
  if (!state.is_known) {
    find_out(config, assignment, logger, deadline, state);
  }
  return state.note ? apply_note(config, assignment, *state.note)
                    : without_note(assignment, state.problem, logger);
}

}  // namespace unisono::rendezvous
