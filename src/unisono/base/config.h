#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/link_costs.h"
#include "unisono/base/log.h"
#include "unisono/base/port_range.h"

namespace unisono {

/// Looks up an environment variable; nothing when it is unset.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// The environment of this process.
[[nodiscard]] Environment process_environment();

/// Names of this process's environment variables that begin with `prefix`, sorted.
[[nodiscard]] std::vector<std::string> process_variables(std::string_view prefix);

/// Whether ranks of a node read each other's private memory.
enum class SingleCopy {
  kAuto,   ///< Where the system allows it, and it is faster.
  kOff,    ///< Never.
  kAlways  ///< Where the system allows it.
};

/// The settings of this library, one member per row of config_table().
struct Config {
  std::string secret;
  std::string secret_file;
  std::string home;  ///< The user's folder, as HOME has it.
  bool tls = false;
  std::string node_id;
  std::string interface;  ///< A name or a network.
  std::optional<PortRange> ports;
  LogLevel log_level = LogLevel::kInfo;
  std::chrono::milliseconds timeout{};
  std::chrono::milliseconds stall{};
  std::string transport = "tcp";  ///< Between nodes; one of transport::find_streams().
  std::int64_t arena_bytes = 0;
  SingleCopy single_copy = SingleCopy::kAuto;
  bool checks_buffers = false;
  bool reports_crashes = true;
  std::optional<LinkCosts> links;
};

/// One setting: the table of these makes the environment's reading and its documentation.
struct ConfigRow {
  const char* name;  ///< Environment variable.
  /// "text", "path", "seconds", "bytes", "level", "ports", "figures", "names", or the choices:
  /// "off|on".
  const char* type;
  const char* default_value;  ///< As a user would write it; "" for none.
  const char* help;
  /// Puts a text into its member; false when the text is no value of the type.
  bool (*parse)(const std::string& text, Config& config);
};

[[nodiscard]] std::span<const ConfigRow> config_table();

/// The settings as the environment has them, defaults for the rest.
///
/// Throws Error(kInvalidArgument) with one message that names every variable whose value can't be
/// used.
[[nodiscard]] Config read_config(const Environment& environment);

}  // namespace unisono
