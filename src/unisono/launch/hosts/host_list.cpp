#include "unisono/launch/hosts/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/text_lines.h"
#include "unisono/launch/run.h"
#include "unisono/net/host_port.h"
#include "unisono/rendezvous/launchers/nodelist.h"

namespace unisono::launch::hosts {
namespace {

using Words = std::vector<std::string_view>;

constexpr std::string_view kBlanks = " \t\r\n\v\f";

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, problem);
}

std::optional<int> try_parse_workers(std::string_view digits) {
  int n_workers = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), n_workers);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  return is_number && n_workers >= 1 && n_workers <= kMaxWorkers ? std::optional(n_workers)
                                                                 : std::nullopt;
}

int parse_workers(std::string_view digits) {
  const std::optional<int> n_workers = try_parse_workers(digits);
  if (!n_workers) {
    refuse(fmt::format("\"{}\" is no number of ranks from 1 to {}; write alpha:4 for 4 ranks",
                       escape_text(digits),
                       kMaxWorkers));
  }
  return *n_workers;
}

Words split_words(std::string_view text) {
  Words words;
  std::size_t end = 0;
  for (std::size_t begin = text.find_first_not_of(kBlanks); begin != std::string_view::npos;
       begin = text.find_first_not_of(kBlanks, end)) {
    end = std::min(text.find_first_of(kBlanks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
  }
  return words;
}

bool is_number(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Where the number of ranks of "alpha:4" begins, behind its colon. An IPv6 address that is to have
// one stands in brackets.
std::size_t find_workers(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  const bool is_behind_host =
      host.starts_with('[') ? colon == host.find(']') + 1 && colon != 0 : colon == host.find(':');
  return colon == std::string_view::npos || !is_behind_host ? std::string_view::npos : colon + 1;
}

// The hosts of a list, in the order in which they come first.
class HostCollector {
 public:
  // A host or several, in one of the forms of launchers and batch systems. A line of a file has one
  // host only, where the form does not say how many.
  void add(const Words& words, bool is_line) {
    if (words.size() == 1) {
      add_entry(words[0], std::nullopt);
    } else if (words[1].find('=') != std::string_view::npos) {
      add_entry(words[0], read_slots(words));
    } else if (are_pairs(words)) {
      for (std::size_t i = 0; i < words.size(); i += 2) {
        add_entry(words[i], try_parse_workers(words[i + 1]));
      }
    } else if (is_line || std::ranges::any_of(words, is_number)) {
      refuse_word(words[1], words[0]);
    } else {
      for (const std::string_view word : words) {
        add_entry(word, std::nullopt);
      }
    }
  }

  // A line of PE_HOSTFILE, "alpha 4 all.q@alpha UNDEFINED", whose last word may be a list of cores;
  // false where it is none.
  bool add_grid_engine(const Words& words) {
    const bool has_queue = (words.size() == 3 || words.size() == 4) &&
                           words[2].find('@') != std::string_view::npos && !is_number(words.back());
    const std::optional<int> n_workers = has_queue ? try_parse_workers(words[1]) : std::nullopt;
    if (n_workers) {
      add_entry(words[0], n_workers);
    }
    return n_workers.has_value();
  }

  // Where names come again without a number, each time is a rank.
  std::vector<Host> finish() {
    for (std::size_t i = 0; i < hosts_.size() && is_any_repeated_; ++i) {
      hosts_[i].n_workers = hosts_[i].n_workers.value_or(n_times_[i]);
    }
    for (const Host& host : hosts_) {
      if (const int n_workers = host.n_workers.value_or(1); n_workers > kMaxWorkers) {
        refuse(fmt::format("{} has {} ranks, and may have {}", host.name, n_workers, kMaxWorkers));
      }
    }
    return std::move(hosts_);
  }

  [[nodiscard]] bool is_empty() const { return hosts_.empty(); }

 private:
  [[noreturn]] static void refuse_word(std::string_view word, std::string_view host) {
    refuse(fmt::format("\"{}\" is unknown here; write {} slots=4, a host a line, or {}:4",
                       escape_text(word),
                       escape_text(host),
                       escape_text(host)));
  }

  // Open MPI's "alpha slots=4 max_slots=8".
  static std::optional<int> read_slots(const Words& words) {
    constexpr std::string_view kSlots = "slots=";
    std::optional<int> n_workers;
    for (const std::string_view word : std::span(words).subspan(1)) {
      if (word.starts_with(kSlots)) {
        n_workers = parse_workers(word.substr(kSlots.size()));
      } else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots=")) {
        refuse_word(word, words[0]);
      }
    }
    return n_workers;
  }

  // LSF's LSB_MCPU_HOSTS: "alpha 4 beta 2".
  static bool are_pairs(const Words& words) {
    bool are_all = words.size() % 2 == 0;
    for (std::size_t i = 1; i < words.size() && are_all; i += 2) {
      are_all = try_parse_workers(words[i]) && !try_parse_workers(words[i - 1]);
    }
    return are_all;
  }

  // Takes "me@" off "me@alpha:4"; nothing where there is no user.
  static std::string take_user(std::string_view& entry) {
    const std::size_t at = entry.rfind('@');
    if (at == std::string_view::npos) {
      return "";
    }
    const std::string user(entry.substr(0, at));
    if (user.empty() || user.find_first_of("[]:*@") != std::string::npos) {
      refuse(fmt::format("\"{}\" has no name of a user before its @; write me@alpha:4",
                         escape_text(entry)));
    }
    entry.remove_prefix(at + 1);
    return user + "@";
  }

  // "alpha", "me@alpha:4", LSF's "4*alpha", "node[1-3]:2", "[fd77::1]:2".
  void add_entry(std::string_view host, std::optional<int> n_workers) {
    if (const std::size_t star = host.find('*'); star != std::string_view::npos) {
      n_workers = parse_workers(host.substr(0, star));
      host.remove_prefix(star + 1);
    }
    const std::string user = take_user(host);
    if (const std::size_t workers_at = find_workers(host); workers_at != std::string_view::npos) {
      n_workers = parse_workers(host.substr(workers_at));
      host = host.substr(0, workers_at - 1);
    }
    if (host.starts_with('[') || host.find(':') != std::string_view::npos) {
      const std::string address(host.substr(0, host.find(',')));
      net::check_host(fmt::format("\"{}\"", address), address, "");
      const bool has_brackets = address.starts_with('[');
      add_host(user + (has_brackets ? address.substr(1, address.size() - 2) : address), n_workers);
      return;
    }
    for (const std::string& name : rendezvous::expand_nodelist(host)) {
      net::check_host(fmt::format("\"{}\"", name), name, "");
      add_host(user + name, n_workers);
    }
  }

  void add_host(const std::string& name, std::optional<int> n_workers) {
    // Else it would be an option of the remote shell.
    if (name.starts_with('-')) {
      refuse(fmt::format("\"{}\" is no name of a host", escape_text(name)));
    }
    if (!hosts_.empty() && hosts_.front().n_workers.has_value() != n_workers.has_value()) {
      refuse(fmt::format("{} has {} and {} has {}: give all hosts one, or none",
                         hosts_.front().name,
                         hosts_.front().n_workers ? "a number of ranks" : "none",
                         name,
                         n_workers ? "one" : "none"));
    }
    const auto [found, is_new] = index_of_.emplace(name, hosts_.size());
    if (is_new) {
      hosts_.push_back({name, n_workers});
      n_times_.push_back(1);
      return;
    }
    is_any_repeated_ = true;
    ++n_times_[found->second];
    if (n_workers) {
      Host& host = hosts_[found->second];
      host.n_workers = host.n_workers.value_or(0) + *n_workers;
    }
  }

  std::vector<Host> hosts_;
  std::vector<int> n_times_;  // How often each host came.
  std::unordered_map<std::string, std::size_t> index_of_;
  bool is_any_repeated_ = false;
};

// The parts of a list between commas outside of brackets.
std::vector<std::string_view> split_entries(std::string_view text) {
  std::vector<std::string_view> entries;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char letter = i < text.size() ? text[i] : ',';
    depth += static_cast<int>(letter == '[') - static_cast<int>(letter == ']');
    if (i == text.size() || (letter == ',' && depth == 0)) {
      entries.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return entries;
}

void add_list(HostCollector& hosts, std::string_view text, bool is_line) {
  if (hosts.add_grid_engine(split_words(text))) {
    return;
  }
  for (const std::string_view entry : split_entries(text)) {
    const Words words = split_words(entry);
    if (words.empty()) {
      refuse("a name is missing; write: alpha:4,beta:4");
    }
    hosts.add(words, is_line);
  }
}

// Also from a pipe, as of <(scontrol show hostnames).
TextLines open_lines(const std::string& path, std::ifstream& file) {
  file.open(path);
  if (!file) {
    throw system_error("can't read the host file " + path, errno);
  }
  return {path, [&file, path](std::span<std::byte> into) {
            file.read(reinterpret_cast<char*>(into.data()),
                      static_cast<std::streamsize>(into.size()));
            if (file.bad()) {
              throw system_error("can't read the host file " + path, errno);
            }
            return static_cast<std::size_t>(file.gcount());
          }};
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  HostCollector hosts;
  add_list(hosts, text, false);
  return hosts.finish();
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file;
  TextLines lines = open_lines(path, file);
  HostCollector hosts;
  while (const std::optional<std::string> line = lines.next()) {
    const std::string_view text = std::string_view(*line).substr(0, line->find('#'));
    try {
      if (text.find_first_not_of(kBlanks) != std::string_view::npos) {
        add_list(hosts, text, true);
      }
    } catch (const Error& error) {
      refuse(fmt::format("{}, line {}: {}", path, lines.line(), error.what()));
    }
  }
  if (hosts.is_empty()) {
    refuse(fmt::format("{} names no host", path));
  }
  return hosts.finish();
}

}  // namespace unisono::launch::hosts
