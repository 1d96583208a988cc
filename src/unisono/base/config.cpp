#include "unisono/base/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/setting_checks.h"

namespace unisono {

using base::Config;

namespace {

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

template <std::string Config::* member>
bool parse_text(const std::string& text, Config& config) {
  config.*member = text;
  return true;
}

template <std::chrono::milliseconds Config::* member>
bool parse_seconds(const std::string& text, Config& config) {
  constexpr double kMaxSeconds = 1e9;
  const std::optional<double> seconds = parse_number<double>(text);
  if (!seconds || !(*seconds > 0) || *seconds > kMaxSeconds) {
    return false;
  }
  config.*member = std::chrono::milliseconds(std::llround(*seconds * 1000));
  return true;
}

// Parses a number with an optional suffix K, M, G or T (powers of 1024).
bool parse_arena_bytes(const std::string& text, Config& config) {
  std::string_view digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const std::size_t unit = std::string_view("KMGT").find(digits.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      digits.remove_suffix(1);
    }
  }
  const std::optional<std::int64_t> number = parse_number<std::int64_t>(digits);
  if (!number || *number < 0 || *number > (std::int64_t{1} << 46) >> shift) {
    return false;
  }
  config.arena_bytes = *number << shift;
  return true;
}

bool parse_level(const std::string& text, Config& config) {
  constexpr std::array<std::string_view, 4> kNames{"debug", "info", "warning", "error"};
  for (std::size_t level = 0; level < kNames.size(); ++level) {
    if (text == kNames[level]) {
      config.log_level = static_cast<LogLevel>(level);
      return true;
    }
  }
  return false;
}

bool parse_single_copy(const std::string& text, Config& config) {
  constexpr std::array<std::string_view, 3> kNames{"auto", "off", "always"};
  for (std::size_t choice = 0; choice < kNames.size(); ++choice) {
    if (text == kNames[choice]) {
      config.single_copy = static_cast<SingleCopy>(choice);
      return true;
    }
  }
  return false;
}

template <bool Config::* member>
bool parse_switch(const std::string& text, Config& config) {
  config.*member = text == "on";
  return text == "on" || text == "off";
}

// Parses a range such as "47000-47999", or a single port.
bool parse_ports(const std::string& text, Config& config) {
  const std::size_t dash = std::min(text.find('-'), text.size());
  const std::optional<std::uint16_t> first = parse_number<std::uint16_t>(text.substr(0, dash));
  const std::optional<std::uint16_t> last =
      dash == text.size() ? first : parse_number<std::uint16_t>(text.substr(dash + 1));
  if (!first || !last || *first == 0 || *last < *first) {
    return false;
  }
  config.ports = PortRange{.first = *first, .last = *last};
  return true;
}

// Sets one figure of `links`. Users give microseconds or GB/s; LinkCosts stores seconds. Returns
// false if `name` is unknown.
bool set_figure(std::string_view name, double value, LinkCosts& links) {
  constexpr double kMicro = 1e-6;
  constexpr double kNano = 1e-9;
  if (name == "meeting") {
    links.session = value * kMicro;
  } else if (name == "local_bandwidth") {
    links.local_byte = kNano / value;
  } else if (name == "latency") {
    links.latency = value * kMicro;
  } else if (name == "message") {
    links.message = value * kMicro;
  } else if (name == "bandwidth") {
    links.remote_byte = kNano / value;
  } else {
    return false;
  }
  return true;
}

// Parses a list of figures such as "latency=17,bandwidth=1.2".
bool parse_links(const std::string& text, Config& config) {
  LinkCosts links;
  std::string_view rest = text;
  while (true) {
    const std::string_view figure = rest.substr(0, rest.find(','));
    const std::size_t equals = figure.find('=');
    if (equals == std::string_view::npos) {
      return false;
    }
    const std::optional<double> value = parse_number<double>(figure.substr(equals + 1));
    constexpr double kMost = 1e9;
    if (!value || !(*value > 0) || *value > kMost ||
        !set_figure(figure.substr(0, equals), *value, links)) {
      return false;
    }
    if (figure.size() == rest.size()) {
      config.links = links;
      return true;
    }
    rest.remove_prefix(figure.size() + 1);
  }
}

// Checks the syntax only. The Python package reads this variable.
bool check_names(const std::string& text, Config& /*config*/) {
  return text.empty() || !find_alias_problem(text);
}

// Returns a description of the valid values of a type, for error messages.
std::string_view rule_of(std::string_view type) {
  if (type == "level") {
    return "one of debug, info, warning, error";
  }
  if (type == "auto|off|always") {
    return "auto, off or always";
  }
  if (type == "off|on") {
    return "off or on";
  }
  if (type == "figures") {
    return "numbers above 0, like "
           "latency=17,message=3,bandwidth=1.2,meeting=0.4,local_bandwidth=10 "
           "(microseconds and GB/s)";
  }
  if (type == "names") {
    return "a list of backends, like gloo=unisono,nccl=unisono";
  }
  if (type == "ports") {
    return "a range of ports from 1 to 65535, like 47000-47999";
  }
  if (type == "seconds") {
    return "a number of seconds above 0";
  }
  return type == "bytes" ? "a number of bytes, like 512M or 2G, of at most 64T" : type;
}

constexpr std::array<ConfigRow, 17> kRows{{
    {"UNISONO_SECRET",
     "text",
     "",
     "Secret of the job: ranks and store authenticate each other with it. Set by `unisono run`.",
     parse_text<&Config::secret>},
    {"UNISONO_SECRET_FILE",
     "path",
     "",
     "File of mode 0600 that holds the job's secret, if UNISONO_SECRET is not set. Default: the "
     "secret that rank 0 publishes through the launcher on several nodes, else ~/.unisono/secret, "
     "if it exists.",
     parse_text<&Config::secret_file>},
    {"UNISONO_TLS",
     "off|on",
     "off",
     "Whether connections to the store use TLS 1.3, so that others on the network can't read them; "
     "the same on all ranks. Data between nodes is not encrypted.",
     parse_switch<&Config::tls>},
    {"UNISONO_NODE_ID",
     "text",
     "",
     "Name of the node; ranks with different names use tcp. Default: derived from kernel and "
     "namespaces.",
     parse_text<&Config::node_id>},
    {"UNISONO_INTERFACE",
     "text",
     "",
     "The network interface (eth1) or the network (10.1.0.0/16) through which other nodes reach "
     "this "
     "rank. Default: the one through which it reaches the store.",
     parse_text<&Config::interface>},
    {"UNISONO_PORTS",
     "ports",
     "",
     "Range of ports on which a rank listens for ranks of other nodes, like 47000-47999: one port "
     "for each rank of a node, two with file:// or multicast. Default: any free port.",
     parse_ports},
    {"UNISONO_LOG",
     "level",
     "info",
     "Minimum level of log lines: debug, info, warning, error. With debug, a rank that others wait "
     "for logs the stacks of its threads.",
     parse_level},
    {"UNISONO_TIMEOUT_SECONDS",
     "seconds",
     "1800",
     "Timeout of an operation, where the program sets none.",
     parse_seconds<&Config::timeout>},
    {"UNISONO_STALL_SECONDS",
     "seconds",
     "5",
     "A rank that waits this long logs the ranks that it waits for, and again after twice that, "
     "and so on.",
     parse_seconds<&Config::stall>},
    {"UNISONO_TRANSPORT",
     "text",
     "tcp",
     "Transport between nodes, the same on all ranks: tcp, or ucx for OpenUCX (InfiniBand, RoCE), "
     "which has variables of its own.",
     parse_text<&Config::transport>},
    {"UNISONO_ARENA_BYTES",
     "bytes",
     "0",
     "Address space of a rank's shared memory (K, M, G, T allowed); 0: as much as the machine has "
     "memory. Pages are allocated on first use.",
     parse_arena_bytes},
    {"UNISONO_SINGLE_COPY",
     "auto|off|always",
     "auto",
     "Whether ranks of a node read each other's private memory (process_vm_readv): auto, where the "
     "system allows it and it is faster; off; always.",
     parse_single_copy},
    {"UNISONO_CHECK_BUFFERS",
     "off|on",
     "off",
     "Debug check: wait() of an asynchronous send or receive fails if its buffer was written to "
     "before wait(), or a page of a receive buffer was read. Messages take several times as long.",
     parse_switch<&Config::checks_buffers>},
    {"UNISONO_CRASH_REPORT",
     "off|on",
     "on",
     "Whether a rank that ends by SIGSEGV, SIGABRT, SIGBUS, SIGFPE or SIGILL first writes its "
     "stack to stderr. Handlers that the program, Python's faulthandler or a sanitizer has "
     "installed before stay.",
     parse_switch<&Config::reports_crashes>},
    {"UNISONO_LINKS",
     "figures",
     "",
     "Costs of links, to use instead of a measurement: latency=US and message=US of messages "
     "between "
     "nodes, bandwidth=GB/S, meeting=US and local_bandwidth=GB/S inside one. Omitted numbers are "
     "those of two cores and a 10 Gbit/s network; where ranks differ, the slowest counts.",
     parse_links},
    {"UNISONO_BACKEND_FALLBACK",
     "off|on",
     "off",
     "Whether all ranks use backend unisono, with a warning, if one of them can't use the "
     "requested backend: no GPU, no MPI. The same on all ranks.",
     parse_switch<&Config::falls_back>},
    {"UNISONO_BACKEND_ALIAS",
     "names",
     "",
     "Names of torch.distributed backends that select Unisono in Python, like "
     "gloo=unisono,nccl=unisono; `unisono alias` prints all that has to be set for it.",
     check_names},
}};

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): safe beside other readers, and nothing here writes.
    const char* value = std::getenv(name);
    if (value == nullptr) {
      return std::nullopt;
    }
    return value;
  };
}

std::vector<std::string> process_variables(std::string_view prefix) {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(prefix)) {
      names.emplace_back(text.substr(0, text.find('=')));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::span<const ConfigRow> config_table() {
  return kRows;
}

void ParsedConfig::check() const {
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument, problems);
  }
}

ParsedConfig parse_config(const Environment& environment) {
  ParsedConfig parsed;
  Config& config = parsed.config;
  std::string& problems = parsed.problems;
  config.home = environment("HOME").value_or("");
  for (const ConfigRow& row : kRows) {
    UNISONO_CHECK(*row.default_value == '\0' || row.parse(row.default_value, config),
                  "a default in the table of settings can't be parsed");
    const std::optional<std::string> text = environment(row.name);
    if (text && !row.parse(*text, config)) {
      problems += fmt::format("{}{}=\"{}\" is not {}",
                              problems.empty() ? "settings: " : "; ",
                              row.name,
                              *text,
                              rule_of(row.type));
    }
  }
  return parsed;
}

Config read_config(const Environment& environment) {
  ParsedConfig parsed = parse_config(environment);
  parsed.check();
  return std::move(parsed.config);
}

}  // namespace unisono
