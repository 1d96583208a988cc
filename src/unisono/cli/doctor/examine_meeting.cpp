#include "unisono/cli/doctor/examine_meeting.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/cli/doctor/system_files.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/loopback.h"
#include "unisono/net/port_holder.h"
#include "unisono/net/port_reservation.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/key_value_space/publish_master_address.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/secret.h"

namespace unisono::cli::doctor {
namespace {

std::string describe_holder(const PortState& state) {
  return state.holder.empty() ? fmt::format("not to be had ({})", state.reason)
                              : "held by " + state.holder;
}

Finding examine_own_port(std::uint16_t port,
                         const PortState& state,
                         bool is_surely_rank_zeros = true) {
  if (state.is_free) {
    return {.state = State::kOk,
            .topic = "port",
            .text = fmt::format("MASTER_PORT {}, where rank 0 serves the store, is free", port)};
  }
  if (!is_surely_rank_zeros) {
    return {.state = State::kWarning,
            .topic = "port",
            .text = fmt::format("MASTER_PORT {} is {}", port, describe_holder(state)),
            .advice =
                "unless that is rank 0 of this job, which serves the store there, set "
                "MASTER_PORT to a free port on every rank"};
  }
  return {.state = State::kProblem,
          .topic = "port",
          .text = fmt::format("MASTER_PORT {} is {}", port, describe_holder(state)),
          .advice = state.holder.empty()
                        ? "set MASTER_PORT to a free port above 1023 on every rank"
                        : "end that process, or set MASTER_PORT to a free port on every rank"};
}

// For a process that is no rank: what a job would find that is started from here.
Finding examine_port_of_a_job_to_come(const Environment& environment,
                                      const MeetingSources& sources) {
  const std::optional<std::string> text = environment("MASTER_PORT");
  const std::int64_t port = text ? parse_whole(*text).value_or(-1) : rendezvous::kDefaultMasterPort;
  if (port < 1 || port > std::numeric_limits<std::uint16_t>::max()) {
    return {.state = State::kProblem,
            .topic = "port",
            .text = fmt::format("MASTER_PORT=\"{}\" is no port", text.value_or("")),
            .advice = "set it to a number from 1 to 65535, or unset it"};
  }
  const PortState state = sources.look_at_port(static_cast<std::uint16_t>(port));
  if (text) {
    return examine_own_port(static_cast<std::uint16_t>(port), state);
  }
  if (state.is_free) {
    return {
        .state = State::kOk,
        .topic = "port",
        .text = fmt::format("{}, where ranks meet that are told no MASTER_PORT, is free", port)};
  }
  return {
      .state = State::kWarning,
      .topic = "port",
      .text = fmt::format(
          "{}, where ranks meet that are told no MASTER_PORT, is {}", port, describe_holder(state)),
      .advice =
          "set MASTER_PORT for ranks that are started by hand; unisono run takes a free "
          "port by itself"};
}

bool is_any_own(const std::vector<net::Address>& addresses, const MeetingSources& sources) {
  return std::any_of(addresses.begin(), addresses.end(), [&](const net::Address& address) {
    return net::is_own_address(sources.interfaces, address);
  });
}

std::string list(const std::vector<net::Address>& addresses) {
  std::string text;
  for (const net::Address& address : addresses) {
    const std::string ip = address.ip();
    if (text.find(ip) == std::string::npos) {
      text += (text.empty() ? "" : ", ") + ip;
    }
  }
  return text;
}

// Where every address is one of loopback.
bool has_any(const std::vector<net::Interface>& interfaces,
             const std::vector<net::Address>& loopbacks) {
  return std::any_of(loopbacks.begin(), loopbacks.end(), [&](const net::Address& address) {
    return net::has_loopback(interfaces, address);
  });
}

Finding report_missing_loopback(const std::string& name,
                                const std::vector<net::Address>& addresses,
                                const std::vector<net::Interface>& interfaces) {
  const net::Address own = net::loopback_of(interfaces);
  return {.state = State::kProblem,
          .topic = "meeting place",
          .text = fmt::format("{} ({}) is loopback, and no interface of this machine has it: {}",
                              name,
                              list(addresses),
                              net::describe(interfaces)),
          .advice = net::has_loopback(interfaces, own)
                        ? fmt::format("set MASTER_ADDR={} on every rank", own.ip())
                        : "ip link set lo up, as root, or set MASTER_ADDR to an address of rank "
                          "0's node"};
}

Finding examine_address(const Environment& environment,
                        const rendezvous::LaunchInfo& launch_info,
                        const MeetingSources& sources) {
  const std::string host = rendezvous::meeting_host(launch_info);
  const std::string name =
      environment("MASTER_ADDR") ? "MASTER_ADDR=" + host : "the meeting place " + host;
  std::vector<net::Address> addresses;
  try {
    addresses = sources.resolve(host);
  } catch (const Error& error) {
    return {.state = State::kProblem,
            .topic = "meeting place",
            .text = fmt::format("{}: {}", name, error.what()),
            .advice = "set MASTER_ADDR to an address, or to a name that every node can look up"};
  }
  const bool is_loopback =
      std::all_of(addresses.begin(), addresses.end(), [](const net::Address& address) {
        return address.is_loopback();
      });
  const auto local_size = parse_whole(environment("LOCAL_WORLD_SIZE").value_or(""));
  const bool has_other_nodes =
      local_size && *local_size < launch_info.world_size && !launch_info.is_on_one_node;
  if (is_loopback && has_other_nodes && (host == "localhost" || host == addresses.front().ip())) {
    return {.state = State::kProblem,
            .topic = "meeting place",
            .text = fmt::format("{} leads every node to itself, and of {} ranks only "
                                "{} are on this one",
                                name,
                                launch_info.world_size,
                                *local_size),
            .advice = "set MASTER_ADDR on every node to an address of rank 0's node"};
  }
  if (is_loopback && !has_any(sources.interfaces, addresses)) {
    return report_missing_loopback(name, addresses, sources.interfaces);
  }
  if (launch_info.rank == 0 && !launch_info.uses_agent_store && !is_any_own(addresses, sources)) {
    return {.state = State::kWarning,
            .topic = "meeting place",
            .text = fmt::format("{} ({}) is no address of this machine, and rank 0, "
                                "which serves the store, is here",
                                name,
                                list(addresses)),
            .advice =
                "set MASTER_ADDR to an address of rank 0's node, unless it is one that is "
                "translated to this machine's"};
  }
  return {.state = State::kOk,
          .topic = "meeting place",
          .text = fmt::format("{} is {}", name, list(addresses))};
}

// Whether the store is served on this machine, as far as can be told.
bool may_be_served_here(const rendezvous::LaunchInfo& launch_info, const MeetingSources& sources) {
  if (launch_info.uses_agent_store || launch_info.rank > 0) {
    return false;
  }
  if (launch_info.rank == 0 || launch_info.master_addr.empty()) {
    return true;
  }
  try {
    return is_any_own(sources.resolve(launch_info.master_addr), sources);
  } catch (const Error&) {
    return true;
  }
}

std::string describe_source(const Config& config) {
  if (!config.secret.empty()) {
    return "from UNISONO_SECRET";
  }
  return config.secret_file.empty()
             ? fmt::format("from {}/.unisono/secret", config.home)
             : fmt::format("from UNISONO_SECRET_FILE={}", config.secret_file);
}

// Where there is no secret that can be used.
std::string advise_secret(const Config& config) {
  if (rendezvous::is_secret_given(config) || config.home.empty()) {
    return "\"unisono secret FILE\" writes a good file for UNISONO_SECRET_FILE";
  }
  std::error_code error;
  const bool is_there = std::filesystem::exists(config.home + "/.unisono/secret", error);
  return fmt::format("{}type, on one node: unisono secret",
                     is_there ? "mend the file, or delete it and " : "");
}

}  // namespace

PortState look_at_port(std::uint16_t port) {
  try {
    // One after the other: together they would be in each other's way.
    (void)net::PortReservation(net::Address::any(AF_INET, port));
    (void)net::PortReservation(net::any_of_both_families(port));
    return {};
  } catch (const Error& error) {
    return {.is_free = false, .holder = net::find_port_holder(port), .reason = error.what()};
  }
}

Findings examine_meeting(const Environment& environment,
                         const Place& place,
                         const MeetingSources& sources) {
  if (!place.is_in_job) {
    return {examine_port_of_a_job_to_come(environment, sources)};
  }
  if (!place.launch_info) {
    return {};
  }
  const rendezvous::LaunchInfo& launch_info = *place.launch_info;
  if (launch_info.master_addr.empty() && place.is_sound) {
    return {};  // Rank 0 looks for an address and a free port by itself.
  }
  Findings findings;
  if (!launch_info.master_addr.empty()) {
    findings.push_back(examine_address(environment, launch_info, sources));
  }
  if (launch_info.master_port != 0 && may_be_served_here(launch_info, sources)) {
    findings.push_back(examine_own_port(launch_info.master_port,
                                        sources.look_at_port(launch_info.master_port),
                                        launch_info.rank == 0));
  }
  return findings;
}

Finding examine_secret(const Config& config, const Place& place) {
  Finding finding{.state = State::kOk, .topic = "secret", .text = ""};
  const bool has_own = !config.secret.empty();
  if (place.launch_info && rendezvous::needs_key_value_space(config, *place.launch_info) &&
      !rendezvous::is_secret_given(config)) {
    finding.text = fmt::format("from the launcher's key space ({}), where rank 0 puts one",
                               to_string(place.launch_info->key_value_space.kind));
    return finding;
  }
  rendezvous::LaunchInfo launch_info = place.launch_info.value_or(rendezvous::LaunchInfo{});
  if (launch_info.master_addr.empty() || launch_info.is_on_one_node) {
    launch_info.master_addr = net::loopback_host();
  }
  try {
    const std::string secret = rendezvous::find_secret(config, launch_info);
    constexpr std::size_t kLeastBytes = 16;
    if (secret.empty() && config.tls) {
      finding.state = place.is_in_job ? State::kProblem : State::kWarning;
      finding.text = "none, and UNISONO_TLS=on makes its key from one";
      finding.advice =
          "set UNISONO_SECRET or UNISONO_SECRET_FILE, the same on every rank, or UNISONO_TLS=off; "
          "unisono run makes a secret by itself";
      return finding;
    }
    if (secret.empty()) {
      finding.state = State::kInfo;
      finding.text = "none: enough for ranks that meet on this machine's loopback";
      finding.advice =
          "for several nodes \"unisono secret\" writes one into ~/.unisono, in a home that they "
          "share; unisono run makes one for a job on this machine";
      return finding;
    }
    finding.text = describe_source(config);
    if (has_own && !config.secret_file.empty()) {
      finding.text += "; UNISONO_SECRET_FILE is not looked at";
    }
    if (secret.size() < kLeastBytes) {
      finding.state = State::kWarning;
      finding.text +=
          fmt::format("; it has less than {} characters, and can be guessed", kLeastBytes);
      finding.advice = "\"unisono secret FILE\" writes a good one";
    }
  } catch (const Error& error) {
    finding.state = State::kProblem;
    finding.text = error.what();
    finding.advice = advise_secret(config);
  }
  return finding;
}

}  // namespace unisono::cli::doctor
