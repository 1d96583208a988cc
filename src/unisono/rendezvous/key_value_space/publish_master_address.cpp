#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/loaded_mpi.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/text.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"
#include "unisono/net/ports.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/this_node.h"

namespace unisono::rendezvous {
namespace {

constexpr const char* kKey = "unisono-rendezvous";
constexpr std::size_t kSecretBytes = 32;
constexpr std::string_view kVersion = "unisono1";

// A descriptor that is not the launcher's connection would never reply.
constexpr std::chrono::seconds kOpenTimeout{20};

std::string describe(const LaunchInfo& launch_info) {
  return fmt::format("the launcher's key space ({})", to_string(launch_info.key_value_space.kind));
}

// Splits the text at "/".
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == '/') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Returns the name of this process, e.g. "rank 3".
std::string own_name(const LaunchInfo& launch_info) {
  return fmt::format("{} {}", launch_info.process_name, launch_info.rank);
}

base::Logger logger_of(const base::Config& config, const LaunchInfo& launch_info) {
  return base::Logger(own_name(launch_info), config.log_level);
}

// Result of the exchange in the key space: obtained once per process, for all groups.
struct Outcome {
  Mutex mutex;
  bool is_known UNISONO_GUARDED_BY(mutex) = false;
  std::optional<MasterRecord> note UNISONO_GUARDED_BY(mutex);
  std::string problem UNISONO_GUARDED_BY(mutex);  // The reason if there is no note.
  std::optional<net::PortReservation> port UNISONO_GUARDED_BY(mutex);
};

// Never destroyed: other threads may create a group until the process exits.
Outcome& outcome() {
  static Outcome* const instance = new Outcome;
  return *instance;
}

std::unique_ptr<KeyValueSpace> open(const LaunchInfo& launch_info, Deadline deadline) {
  const MpiState mpi = mpi_state();
  if (launch_info.key_value_space.kind == KeyValueSpaceKind::kPmix) {
    return open_pmix(mpi);
  }
  return open_pmi(
      launch_info.key_value_space.pmi_fd, mpi, earlier(deadline, Deadline::after(kOpenTimeout)));
}

// Returns the record that rank 0 publishes.
MasterRecord make_note(const base::Config& config,
                       const LaunchInfo& launch_info,
                       const base::Logger& logger,
                       std::optional<net::PortReservation>& port) {
  MasterRecord note;
  if (!is_secret_given(config)) {
    note.secret = random_hex(kSecretBytes);
  }
  if (launch_info.master_addr.empty()) {
    const net::Address address =
        choose_own_address(config.interface, net::interfaces(), net::default_route_address());
    if (address.is_loopback()) {
      logger.warning(fmt::format(
          "rendezvous: the node of {0} 0 has no network, so that other nodes can't reach it; set "
          "MASTER_ADDR, or UNISONO_INTERFACE, for all {0}s",
          launch_info.process_name));
    }
    note.address = address.ip();
    note.port = launch_info.master_port;
    if (note.port == 0) {
      port.emplace(reserve_store_port(config, address.family()));
      note.port = port->port();
    }
  }
  return note;
}

Error in_key_space(const LaunchInfo& launch_info, const Error& error) {
  return {error.code(),
          fmt::format("rendezvous: {} of {}, in {}: {}. A {} for which UNISONO_SECRET and "
                      "MASTER_ADDR are set does not need it",
                      own_name(launch_info),
                      launch_info.world_size,
                      describe(launch_info),
                      error.what(),
                      launch_info.process_name)};
}

void find_out(const base::Config& config,
              const LaunchInfo& launch_info,
              const base::Logger& logger,
              Deadline deadline,
              Outcome& state) UNISONO_REQUIRES(state.mutex) {
  state.is_known = true;
  std::unique_ptr<KeyValueSpace> space;
  try {
    space = open(launch_info, deadline);
  } catch (const Error& error) {
    state.problem = fmt::format("{} can't be used: {}", describe(launch_info), error.what());
    return;
  }
  try {
    const MasterRecord own =
        launch_info.rank == 0 ? make_note(config, launch_info, logger, state.port) : MasterRecord{};
    state.note = exchange_record(*space, launch_info, own, config, deadline);
    space->leave();
  } catch (const Error& error) {
    state.problem = fmt::format("{} has failed before: {}", describe(launch_info), error.what());
    throw in_key_space(launch_info, error);
  }
}

LaunchInfo without_note(const LaunchInfo& launch_info,
                        const std::string& problem,
                        const base::Logger& logger) {
  if (launch_info.master_addr.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rendezvous: {1} has no address where the {0}s meet: {2}. Set "
                            "MASTER_ADDR for all {0}s to the name of {0} 0's node, MASTER_PORT "
                            "to a port that is free there, and UNISONO_SECRET",
                            launch_info.process_name,
                            own_name(launch_info),
                            problem));
  }
  logger.warning("rendezvous: no secret from the launcher: " + problem);
  LaunchInfo result = launch_info;
  result.key_value_space.problem = problem;
  return result;
}

}  // namespace

std::string encode_record(const MasterRecord& note) {
  return fmt::format("{}/{}/{}/{}", kVersion, note.secret, note.address, note.port);
}

std::optional<MasterRecord> decode_record(std::string_view text) {
  const std::vector<std::string> parts = parts_of(text);
  if (parts.size() != 4 || parts[0] != kVersion ||
      parts[1].find_first_not_of("0123456789abcdef") != std::string::npos) {
    return std::nullopt;
  }
  MasterRecord note{.secret = parts[1], .address = parts[2]};
  const std::string& port = parts[3];
  const char* const end = port.data() + port.size();
  const auto [stop, error] = std::from_chars(port.data(), end, note.port);
  const bool is_whole = error == std::errc() && stop == end;
  return is_whole && note.address.empty() == (note.port == 0) ? std::optional(note) : std::nullopt;
}

bool needs_key_value_space(const base::Config& config, const LaunchInfo& launch_info) {
  return launch_info.key_value_space.kind != KeyValueSpaceKind::kNone &&
         (launch_info.master_addr.empty() || !is_secret_given(config));
}

MasterRecord exchange_record(KeyValueSpace& space,
                             const LaunchInfo& launch_info,
                             const MasterRecord& own,
                             const base::Config& config,
                             Deadline deadline) {
  if (launch_info.rank == 0) {
    space.put(kKey, encode_record(own), deadline);
  }
  const auto start = Deadline::Clock::now();
  auto stall = config.stall;
  while (!space.fence(earlier(deadline, Deadline::at(start + stall)))) {
    const std::chrono::duration<double> spent = Deadline::Clock::now() - start;
    const std::string message = fmt::format(
        "waited {1:.1f} s for the other {0}s to come to {2}; {0}s do so without UNISONO_SECRET and "
        "MASTER_ADDR: set them for all {0}s or for none",
        launch_info.process_name,
        spent.count(),
        describe(launch_info));
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout, message);
    }
    logger_of(config, launch_info)
        .warning(fmt::format("rendezvous: {} has {}", own_name(launch_info), message));
    stall *= 2;
  }
  if (launch_info.rank == 0) {
    return own;
  }
  const std::optional<MasterRecord> note = decode_record(space.get(kKey, deadline));
  if (!note) {
    throw Error(ErrorCode::kIncompatible,
                fmt::format("the entry of {0} 0 there is not for this release of Unisono: all "
                            "{0}s need the same one",
                            launch_info.process_name));
  }
  return *note;
}

LaunchInfo apply_record(const base::Config& config,
                        const LaunchInfo& launch_info,
                        const MasterRecord& note) {
  const auto differ = [&](const char* here, const char* what, const char* there) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("rendezvous: {1} has {2} {3}, and {0} 0 has {4}: set it for all "
                             "{0}s or for none (mpirun -x NAME or -genvlist NAME passes it on)",
                             launch_info.process_name,
                             own_name(launch_info),
                             here,
                             what,
                             there));
  };
  constexpr const char* kSecret = "UNISONO_SECRET or UNISONO_SECRET_FILE";
  if (is_secret_given(config) != note.secret.empty()) {
    throw note.secret.empty() ? differ("no", kSecret, "one")
                              : differ("been given", kSecret, "none");
  }
  if (launch_info.master_addr.empty() == note.address.empty()) {
    throw note.address.empty() ? differ("no", "MASTER_ADDR", "one")
                               : differ("been given", "MASTER_ADDR", "none");
  }
  LaunchInfo result = launch_info;
  result.secret = note.secret;
  if (result.master_addr.empty()) {
    result.master_addr = note.address;
    result.master_port = note.port;
  }
  return result;
}

LaunchInfo publish_master_address(const base::Config& config,
                                  const LaunchInfo& launch_info,
                                  Deadline deadline) {
  if (!needs_key_value_space(config, launch_info)) {
    return launch_info;
  }
  const base::Logger logger = logger_of(config, launch_info);
  Outcome& state = outcome();
  // Held while this process waits for the launcher: a second group needs the same result.
  const MutexLock lock(state.mutex);
  if (!state.is_known) {
    find_out(config, launch_info, logger, deadline, state);
  }
  return state.note ? apply_record(config, launch_info, *state.note)
                    : without_note(launch_info, state.problem, logger);
}

}  // namespace unisono::rendezvous
