#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace unisono::net {

/// A host's name or numeric address with a port: "alpha:29500", "10.0.0.2:29500", "[::1]:29500".
[[nodiscard]] std::string join_host_port(const std::string& host, std::uint16_t port);

/// The reason why no machine can have this name or numeric address, with the form that works; empty
/// where one may have it, even if no name server has it yet.
///
/// `port_name` is the place for the port, such as "MASTER_PORT"; it is empty where the host itself
/// may be followed by ":" and a number. Only the text is examined, and this machine's interfaces
/// for the zone of an address.
[[nodiscard]] std::string describe_host_fault(const std::string& host,
                                              std::string_view port_name = "the port");

/// Refuses such a host: `given_as` is what the user typed, with its value ("--master-addr a/b").
///
/// Throws Error(kInvalidArgument).
void check_host(const std::string& given_as,
                const std::string& host,
                std::string_view port_name = "the port");

}  // namespace unisono::net
