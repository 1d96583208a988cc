#include "unisono/base/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/backend_alias.h"
#include "unisono/base/error.h"
#include "unisono/base/link_costs.h"
#include "unisono/base/log.h"
#include "unisono/base/port_range.h"

namespace unisono {
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

// A number with an optional K, M, G or T (powers of 1024).
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

// "47000-47999", or one port.
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

// A figure of `links` as users give it: microseconds, or GB/s.
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

// "latency=17,bandwidth=1.2"
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

// Python reads it; here it is only held to its form.
bool check_names(const std::string& text, Config& /*config*/) {
  return text.empty() || !find_alias_problem(text);
}

// Who chooses a backend reads it, before there are settings.
bool check_switch(const std::string& text, Config& /*config*/) {
  return text == "on" || text == "off";
}

// What a value of a row's type must be, for messages.
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
    return "figures above 0, like "
           "latency=17,message=3,bandwidth=1.2,meeting=0.4,local_bandwidth=10 "
           "(microseconds and GB/s)";
  }
  if (type == "names") {
    return "names of backends, like gloo=unisono,nccl=unisono";
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
     "The job's secret: ranks and store prove to each other that they know it. Set by `unisono "
     "run`.",
     parse_text<&Config::secret>},
    {"UNISONO_SECRET_FILE",
     "path",
     "",
     "A file of mode 0600 that holds the job's secret, if UNISONO_SECRET is not set. Default: what "
     "rank 0 tells through the launcher on several nodes, else ~/.unisono/secret, if that is "
     "there.",
     parse_text<&Config::secret_file>},
    {"UNISONO_TLS",
     "off|on",
     "off",
     "Whether ranks speak TLS 1.3 with the store, against listeners on the path; the same on all. "
     "Data "
     "between nodes goes without.",
     parse_switch<&Config::tls>},
    {"UNISONO_NODE_ID",
     "text",
     "",
     "Name of the node; ranks with different names use tcp. Default: found from kernel and "
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
     "The ports in which a rank listens for those of other nodes, like 47000-47999: one for each "
     "rank "
     "of a node, two with file:// or multicast. Default: any free one.",
     parse_ports},
    {"UNISONO_LOG",
     "level",
     "info",
     "Least level of log lines: debug, info, warning, error. With debug a rank that others wait "
     "for "
     "shows where its threads are.",
     parse_level},
    {"UNISONO_TIMEOUT_SECONDS",
     "seconds",
     "1800",
     "Time that an operation may take, where the program gives none.",
     parse_seconds<&Config::timeout>},
    {"UNISONO_STALL_SECONDS",
     "seconds",
     "5",
     "A rank that waits this long says for whom, and again after twice that, and so on.",
     parse_seconds<&Config::stall>},
    {"UNISONO_TRANSPORT",
     "text",
     "tcp",
     "How ranks of different nodes reach each other, alike on all of them: tcp, or ucx for OpenUCX "
     "(InfiniBand, RoCE), which has variables of its own.",
     parse_text<&Config::transport>},
    {"UNISONO_ARENA_BYTES",
     "bytes",
     "0",
     "Address space of a rank's shared memory (K, M, G, T allowed); 0: as much as the machine has "
     "memory. Pages are taken when first used.",
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
     "Whether the wait for an asynchronous send or receive fails if its buffer was written to "
     "before "
     "it, or a page of a receive's read: to find such errors; messages take several times as long.",
     parse_switch<&Config::checks_buffers>},
    {"UNISONO_CRASH_REPORT",
     "off|on",
     "on",
     "Whether a rank that dies of SIGSEGV, SIGABRT, SIGBUS, SIGFPE or SIGILL first writes to "
     "stderr "
     "where it was. Handlers that the program, Python's faulthandler or a sanitizer has installed "
     "before stay.",
     parse_switch<&Config::reports_crashes>},
    {"UNISONO_LINKS",
     "figures",
     "",
     "What links cost, if they are not to be measured: latency=US and message=US of messages "
     "between "
     "nodes, bandwidth=GB/S, meeting=US and local_bandwidth=GB/S inside one. Figures left out are "
     "those of two cores and a 10 Gbit/s network; of different ones the slowest count.",
     parse_links},
    {"UNISONO_BACKEND_FALLBACK",
     "off|on",
     "off",
     "Whether all ranks use backend unisono, with a warning, where one can't have the backend that "
     "it asks for: no GPU, no MPI. Alike on all ranks.",
     check_switch},
    {"UNISONO_BACKEND_ALIAS",
     "names",
     "",
     "Backends of Python's torch.distributed that mean Unisono, like gloo=unisono,nccl=unisono; "
     "`unisono alias` says what else that takes.",
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

Config read_config(const Environment& environment) {
  Config config;
  config.home = environment("HOME").value_or("");
  std::string problems;
  for (const ConfigRow& row : kRows) {
    UNISONO_CHECK(*row.default_value == '\0' || row.parse(row.default_value, config),
                  "a default in the table of settings can't be parsed");
    const std::optional<std::string> text = environment(row.name);
    if (text && !row.parse(*text, config)) {
      problems += fmt::format("{}{}=\"{}\" is not {}",
                              problems.empty() ? "" : "; ",
                              row.name,
                              *text,
                              rule_of(row.type));
    }
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "settings: " + problems);
  }
  return config;
}

}  // namespace unisono
