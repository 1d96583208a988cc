#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/log.h"

namespace unisono {

/// TCP ports from `first` to `last`, both included.
struct PortRange {
  std::uint16_t first;
  std::uint16_t last;
};

/// Parameters of the cost model for data transfers between ranks, in seconds. The defaults hold for
/// two cores of a server and a 10 Gbit/s network.
struct LinkCosts {
  double session = 0.4e-6;  ///< Time until all ranks of a node have met in an operation.
  /// Time per byte to read data that another rank of the node has written.
  double local_byte = 0.1e-9;
  double latency = 25e-6;       ///< Latency of a message between nodes.
  double message = 3e-6;        ///< Additional time of each message after the first.
  double remote_byte = 0.8e-9;  ///< Time per byte to send to another node while receiving.
};

/// Looks up an environment variable; returns std::nullopt if the variable is unset.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// Returns a lookup in the environment of this process.
[[nodiscard]] Environment process_environment();

/// Returns the names of this process's environment variables that begin with `prefix`, sorted.
[[nodiscard]] std::vector<std::string> process_variables(std::string_view prefix);

/// Policy for direct reads of the private memory of another rank on the node.
enum class SingleCopy {
  kAuto,   ///< Read directly if the system allows it and direct reads are faster.
  kOff,    ///< Never read directly.
  kAlways  ///< Read directly if the system allows it.
};

namespace base {

/// The settings of this library, one member per row of config_table().
struct Config {
  std::string secret;
  std::string secret_file;
  std::string home;  ///< The user's home folder, from HOME.
  bool tls = false;
  std::string node_id;
  std::string interface;  ///< An interface name or a network.
  std::optional<PortRange> ports;
  LogLevel log_level = LogLevel::kInfo;
  std::chrono::milliseconds timeout{};
  std::chrono::milliseconds stall{};
  std::string transport = "tcp";  ///< Name of the transport between nodes.
  std::int64_t arena_bytes = 0;
  SingleCopy single_copy = SingleCopy::kAuto;
  bool checks_buffers = false;
  bool reports_crashes = true;
  /// Fall back to backend unisono if a rank cannot use the backend that it requests.
  bool falls_back = false;
  std::optional<LinkCosts> links;
};

}  // namespace base

/// One setting. The table of settings defines both the parsing of the environment and the
/// documentation.
struct ConfigRow {
  const char* name;  ///< Environment variable.
  /// "text", "path", "seconds", "bytes", "level", "ports", "figures", "names", or the choices, such
  /// as "off|on".
  const char* type;
  const char* default_value;  ///< The default as a user would write it; "" if there is no default.
  const char* help;
  /// Parses a text into the member of `config`. Returns false if the text is not a valid value of
  /// the type.
  bool (*parse)(const std::string& text, base::Config& config);
};

/// Returns the table of all settings, one row per environment variable.
[[nodiscard]] std::span<const ConfigRow> config_table();

/// Settings and the problems found while parsing.
struct ParsedConfig {
  base::Config config;
  /// Names each variable with an invalid value; the setting keeps the default. Empty if all values
  /// are valid.
  std::string problems = {};

  /// Throws Error(kInvalidArgument) with the problems unless `problems` is empty.
  void check() const;
};

/// Reads the settings from the environment. Unset settings have the defaults.
[[nodiscard]] ParsedConfig parse_config(const Environment& environment);

/// Reads the settings like parse_config(), then calls ParsedConfig::check().
[[nodiscard]] base::Config read_config(const Environment& environment);

}  // namespace unisono
