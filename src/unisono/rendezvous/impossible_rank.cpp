#include "unisono/rendezvous/impossible_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/assign.h"
#include "unisono/rendezvous/connect_to_store.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/launchers/variable_reader.h"
#include "unisono/rendezvous/methods/init_method.h"
#include "unisono/rendezvous/resolve_rendezvous.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/node_id.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/serve_store.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {
namespace {

constexpr std::chrono::seconds kPatience{2};

// -1 where it is no number, or not known.
int given_rank(const InitMethod& method, const RendezvousRequest& request) {
  if (request.given.rank >= 0) {
    return request.given.rank;
  }
  VariableReader reader(request.environment);
  return (method.scheme == "tcp" ? method.number("rank", 0) : reader.optional_int("RANK", 0))
      .value_or(-1);
}

}  // namespace

void tell_of_impossible_rank(const InitMethod& method,
                             const RendezvousRequest& request,
                             const Config& config,
                             const std::string& problem) noexcept {
  try {
    const Deadline deadline = Deadline::after(kPatience);
    // Throws where something else is wrong, too.
    LaunchInfo place = assign(method, request.environment, 0, request.given.world_size);
    place.rank = given_rank(method, request);
    place.master_addr = meeting_host(place);
    if (place.rank < place.world_size) {
      return;
    }
    const auto store = std::make_shared<store::TcpStore>(
        store_options(config, place, find_secret(config, place)), deadline);
    if (describe_other_job(place, *store).empty()) {
      fail_roster(*part_of(store, request.keys),
                  {.rank = place.rank,
                   .world_size = place.world_size,
                   .host = host_name(),
                   .pid = ::getpid(),
                   .node = node_id(config),
                   .address = "",
                   .port = 0,
                   .endpoint = ""},
                  fmt::format("failed: {}", problem),
                  {.generation = request.keys.generation});
    }
  } catch (const std::exception&) {
    return;  // Nobody is there, or it is no store that this process may use.
  }
}

}  // namespace unisono::rendezvous
