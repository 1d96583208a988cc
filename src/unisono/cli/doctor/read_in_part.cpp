#include "unisono/cli/doctor/read_in_part.h"

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::cli::doctor {
namespace {

using rendezvous::LaunchInfo;

// Nothing hides a variable.
using Changes = std::map<std::string, std::optional<std::string>>;

Environment with(const Environment& environment, Changes changes) {
  return [&environment, changes = std::move(changes)](const char* name) {
    const auto change = changes.find(name);
    return change == changes.end() ? environment(name) : change->second;
  };
}

std::optional<LaunchInfo> try_find(const Environment& environment,
                                   int rank = -1,
                                   int world_size = -1) {
  try {
    return rendezvous::find_launch_info(environment, rank, world_size);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// As a rank of a world in which any would do.
std::optional<LaunchInfo> try_resolve_rendezvous(const Environment& environment) {
  return try_find(environment, 0, std::numeric_limits<int>::max());
}

LaunchInfo read_place(const Environment& environment) {
  if (const auto whole = try_resolve_rendezvous(environment)) {
    return *whole;
  }
  LaunchInfo place;
  place.master_port = 0;
  if (const auto found =
          try_resolve_rendezvous(with(environment, {{"MASTER_PORT", std::nullopt}}))) {
    place = *found;
    place.master_port = 0;
  } else if (environment("MASTER_PORT")) {
    const auto port = try_resolve_rendezvous(with(environment, {{"MASTER_ADDR", "localhost"}}));
    place = port.value_or(place);
    place.master_addr.clear();
  }
  return place;
}

}  // namespace

LaunchInfo read_in_part(const Environment& environment) {
  const Environment known_locals =
      with(environment, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", std::nullopt}});
  LaunchInfo result = read_place(known_locals);
  const std::optional<LaunchInfo> figures =
      try_find(with(known_locals, {{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", std::nullopt}}));
  result.rank = figures ? figures->rank : -1;
  result.world_size = figures ? figures->world_size : 1;
  result.local_rank = -1;
  return result;
}

}  // namespace unisono::cli::doctor
