#include "unisono/rendezvous/find_place.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/similar_setting.h"
#include "unisono/net/host_port.h"
#include "unisono/rendezvous/agree.h"
#include "unisono/rendezvous/assign.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/gather.h"
#include "unisono/rendezvous/impossible_rank.h"
#include "unisono/rendezvous/init_method.h"
#include "unisono/rendezvous/key_space_access.h"

namespace unisono::rendezvous {
namespace {

// One message for all that is wrong, whichever variables it is in.
std::pair<Config, Assignment> read_environment(const InitMethod& method,
                                               const PlaceRequest& request) {
  std::string problems;
  const auto note = [&problems](const Error& error) {
    problems += (problems.empty() ? "" : "; ") + std::string(error.what());
  };
  std::pair<Config, Assignment> result;
  bool has_config = false;
  try {
    result.first = read_config(request.environment);
    has_config = true;
  } catch (const Error& error) {
    note(error);
  }
  try {
    result.second =
        assign(method, request.environment, request.given.rank, request.given.world_size);
  } catch (const Error& error) {
    note(error);
  }
  if (!problems.empty()) {
    if (has_config) {
      tell_of_impossible_rank(method, request, result.first, problems);
    }
    throw Error(ErrorCode::kInvalidArgument, problems);
  }
  return result;
}

void log_launcher(const Config& config, const Assignment& assignment) {
  if (assignment.rank == 0 && !assignment.launcher.empty()) {
    Logger("rank 0", config.log_level)
        .info(fmt::format("started by {}: {} ranks meet at {}{}",
                          assignment.origin,
                          assignment.world_size,
                          net::join_host_port(assignment.master_addr, assignment.master_port),
                          assignment.secret.empty()
                              ? ""
                              : fmt::format("; their secret is in the launcher's key space ({})",
                                            to_string(assignment.key_space.kind))));
  }
}

// A setting with another name changes nothing, silently.
void warn_of_misspelled_settings(const Config& config, const Assignment& assignment) {
  if (assignment.rank != 0) {
    return;
  }
  for (const std::string& name : process_variables("UNISONO_")) {
    if (const std::string similar = similar_setting(name); !similar.empty()) {
      Logger("rank 0", config.log_level)
          .warning(fmt::format(
              "{} is no setting of Unisono, and changes nothing; is {} meant?", name, similar));
    }
  }
}

}  // namespace

std::chrono::milliseconds choose_timeout(std::optional<std::chrono::milliseconds> chosen,
                                         const Config& config) {
  const std::chrono::milliseconds timeout = chosen.value_or(config.timeout);
  if (timeout <= std::chrono::milliseconds::zero()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_process_group: the timeout is {} ms", timeout.count()));
  }
  return timeout;
}

Place find_place(const PlaceRequest& request) {
  const InitMethod method = parse_init_method(request.init_method);
  const Gather gather = find_gather(method);
  Place place;
  if (gather == nullptr) {
    std::tie(place.config, place.gathered.assignment) = read_environment(method, request);
  } else {
    place.config = read_config(request.environment);
  }
  place.timeout = choose_timeout(request.timeout, place.config);
  place.deadline = Deadline::after(place.timeout);
  if (gather == nullptr) {
    place.gathered.assignment = agree(place.config, place.gathered.assignment, place.deadline);
    log_launcher(place.config, place.gathered.assignment);
  } else {
    place.gathered = gather({.method = method,
                             .given = request.given,
                             .config = place.config,
                             .environment = request.environment,
                             .deadline = place.deadline});
  }
  warn_of_misspelled_settings(place.config, place.gathered.assignment);
  if (method.scheme != "env") {
    // Without the query, which differs from rank to rank.
    place.gathered.assignment.place_source =
        "init_method " + method.text.substr(0, method.text.find('?'));
  }
  return place;
}

}  // namespace unisono::rendezvous
