#include "unisono/cli/doctor/examine.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/cli/doctor/examine_gpus.h"
#include "unisono/cli/doctor/examine_launcher.h"
#include "unisono/cli/doctor/examine_libraries.h"
#include "unisono/cli/doctor/examine_limits.h"
#include "unisono/cli/doctor/examine_meeting.h"
#include "unisono/cli/doctor/examine_memory.h"
#include "unisono/cli/doctor/examine_network.h"
#include "unisono/cli/doctor/examine_processor.h"
#include "unisono/cli/doctor/examine_settings.h"
#include "unisono/cli/doctor/examine_system.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/rendezvous/roster/node_id.h"

namespace unisono::cli::doctor {
namespace {

MeetingSources meeting_sources(const std::vector<net::Interface>& interfaces) {
  return {.resolve = [](const std::string& host) { return net::resolve(host, 0); },
          .look_at_port = look_at_port,
          .interfaces = interfaces};
}

Finding describe_host() {
  const std::string name = rendezvous::host_name();
  std::string addresses;
  try {
    for (const net::Address& address : net::resolve(name, 0)) {
      addresses += (addresses.empty() ? "" : ", ") + address.ip();
    }
  } catch (const Error&) {
    return {.state = State::kInfo,
            .topic = "host",
            .text = fmt::format("{}; nobody here knows an address for the name", name)};
  }
  return {.state = State::kInfo, .topic = "host", .text = fmt::format("{} is {}", name, addresses)};
}

}  // namespace

Here examine_here(const Environment& environment, const std::filesystem::path& root) {
  auto [place, findings] = examine_launcher(environment);
  Here here{.place = std::move(place), .examination = {}};
  const Config config = readable_config(environment);
  const std::vector<net::Interface> interfaces = net::interfaces();
  const int world_size = here.place.launch_info ? here.place.launch_info->world_size : 1;

  Findings& own = here.examination.of_process;
  append(own, std::move(findings));
  append(own, examine_meeting(environment, here.place, meeting_sources(interfaces)));
  own.push_back(examine_secret(config, here.place));
  append(own, examine_settings(environment, process_variables("UNISONO_")));
  append(own, examine_limits(call_memory(), root, world_size));
  append(own, examine_cores(environment, here.place, count_cores(), root));
  append(own, examine_gpus(environment, root));
  own.push_back(examine_single_copy(try_single_copy(), root));
  append(own, list_launcher_variables(environment));

  Findings& shared = here.examination.of_node;
  shared.push_back(describe_host());
  append(shared, examine_data_path(config, here.place, find_route(here.place), interfaces));
  append(shared, examine_interfaces(interfaces, root));
  append(shared, examine_memory(root));
  append(shared, examine_numa(root));
  append(shared, examine_libraries(environment, root));
  append(shared, examine_kernel(environment, root));
  shared.push_back(examine_clock(read_clock()));
  return here;
}

}  // namespace unisono::cli::doctor
