#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

/// A parsed init method, "scheme://host:port/path?name=value&...". All parts except the scheme are
/// optional.
struct InitMethod {
  std::string text;    ///< The whole text, for messages.
  std::string scheme;  ///< "env", "tcp", "file" or a registered scheme.
  std::string host;    ///< An IPv6 address is without brackets.
  std::optional<std::uint16_t> port;
  std::string path;  ///< Begins with the first '/'.
  std::map<std::string, std::string> query;

  /// Returns a number of the query, or std::nullopt if not given.
  ///
  /// Throws Error(kInvalidArgument) unless the value is an integer of at least `least`.
  [[nodiscard]] std::optional<int> number(const std::string& name, int least) const;
};

/// Returns true if `text` may stand before "://": lowercase letters, digits, +, - and dots.
[[nodiscard]] bool is_scheme(std::string_view text);

/// Parses an init method. Decodes "%20" and the like in path and query.
///
/// Throws Error(kInvalidArgument) with the text and the problem.
[[nodiscard]] InitMethod parse_init_method(const std::string& text);

/// Values given by the program; negative values are not given.
struct GivenRank {
  int rank = -1;
  int world_size = -1;
};

/// Input of a discovery: a process that searches for the other processes of the job.
struct DiscoveryRequest {
  InitMethod method;
  GivenRank given;
  base::Config config;
  Environment environment;
  Deadline deadline;
};

/// Result of a discovery: the process's place in the job.
struct Discovered {
  LaunchInfo launch_info;
  /// Resources that must live until all ranks have met at the store, such as the reserved port of
  /// the store; may be null.
  std::shared_ptr<void> presence;
};

/// Finds the place of this process. Throws Error(kInvalidArgument) if the method is invalid,
/// Error(kTimeout) with the processes that are present.
using Discovery = std::function<Discovered(const DiscoveryRequest& request)>;

/// Registers a discovery for init methods "scheme://...", for all process groups of this program.
/// `discover` is called on each thread that creates a group. Thread-safe.
///
/// Throws Error(kInvalidArgument) if `scheme` is not a valid scheme or is already registered.
void register_init_method(const std::string& scheme, Discovery discover);

/// Returns the discovery of the method. Returns null for env:// and tcp://HOST:PORT, which need no
/// discovery; see resolve_rendezvous(). Thread-safe.
///
/// Throws Error(kInvalidArgument), with the known schemes, for an unknown scheme.
[[nodiscard]] Discovery find_discovery(const InitMethod& method);

}  // namespace unisono::rendezvous
