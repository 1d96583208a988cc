#include "unisono/launch/hosts/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/launch/run.h"
#include "unisono/rendezvous/launchers/nodelist.h"

namespace unisono::launch::hosts {
namespace {

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, problem);
}

int parse_workers(std::string_view digits) {
  int n_workers = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), n_workers);
  if (error != std::errc() || end != digits.data() + digits.size() || n_workers < 1 ||
      n_workers > kMaxWorkers) {
    refuse(fmt::format("\"{}\" is no number of ranks from 1 to {}", digits, kMaxWorkers));
  }
  return n_workers;
}

// Where the number of ranks of "alpha:4" begins, behind its colon. An IPv6 address that is to have
// one stands in brackets.
std::size_t find_workers(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const bool is_address = !text.starts_with('[') && text.find(':') != colon;
  const bool is_in_brackets = colon != std::string_view::npos && colon < text.rfind(']') + 1 &&
                              text.rfind(']') != std::string_view::npos;
  return colon == std::string_view::npos || is_address || is_in_brackets ? std::string_view::npos
                                                                         : colon + 1;
}

void add(std::vector<Host>& hosts, const Host& host) {
  // Else it would be an option of the remote shell.
  if (host.name.starts_with('-')) {
    refuse(fmt::format("\"{}\" is no name of a host", host.name));
  }
  const auto found = std::ranges::find(hosts, host.name, &Host::name);
  if (!hosts.empty() && hosts.front().n_workers.has_value() != host.n_workers.has_value()) {
    refuse(fmt::format("{} has {} and {} has {}: give all hosts one, or none",
                       hosts.front().name,
                       hosts.front().n_workers ? "a number of ranks" : "none",
                       host.name,
                       host.n_workers ? "one" : "none"));
  }
  if (found == hosts.end()) {
    hosts.push_back(host);
  } else if (host.n_workers) {
    found->n_workers = found->n_workers.value_or(0) + *host.n_workers;
  } else {
    refuse(fmt::format("{} comes twice; write {}:2 for two ranks", host.name, host.name));
  }
}

// A host, or several that brackets stand for.
void add_entry(std::vector<Host>& hosts,
               std::string_view entry,
               std::optional<int> n_workers = std::nullopt) {
  const std::size_t workers_at = find_workers(entry);
  if (workers_at != std::string_view::npos) {
    n_workers = parse_workers(entry.substr(workers_at));
    entry = entry.substr(0, workers_at - 1);
  }
  if (entry.starts_with('[') && entry.ends_with(']')) {
    add(hosts, {std::string(entry.substr(1, entry.size() - 2)), n_workers});
    return;
  }
  if (entry.find(':') != std::string_view::npos) {
    add(hosts, {std::string(entry), n_workers});
    return;
  }
  for (const std::string& name : rendezvous::expand_nodelist(entry)) {
    add(hosts, {name, n_workers});
  }
}

// A line of a host file, without its comment.
void add_line(std::vector<Host>& hosts, const std::string& line) {
  std::istringstream words(line);
  std::string entry;
  if (!(words >> entry)) {
    return;
  }
  std::optional<int> n_workers;
  for (std::string word; words >> word;) {
    constexpr std::string_view kSlots = "slots=";
    if (word.starts_with(kSlots)) {
      n_workers = parse_workers(std::string_view(word).substr(kSlots.size()));
    } else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots=")) {
      refuse(fmt::format("\"{}\" is unknown here; write: {} slots=4", word, entry));
    }
  }
  add_entry(hosts, entry, n_workers);
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char letter = i < text.size() ? text[i] : ',';
    depth += static_cast<int>(letter == '[') - static_cast<int>(letter == ']');
    if (i == text.size() || (letter == ',' && depth == 0)) {
      add_entry(hosts, text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw system_error("can't read the host file " + path, errno);
  }
  std::vector<Host> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      add_line(hosts, line.substr(0, line.find('#')));
    } catch (const Error& error) {
      refuse(fmt::format("{}, line {}: {}", path, number, error.what()));
    }
  }
  if (file.bad()) {
    throw system_error("can't read the host file " + path, errno);
  }
  if (hosts.empty()) {
    refuse(fmt::format("{} names no host", path));
  }
  return hosts;
}

}  // namespace unisono::launch::hosts
