#include "unisono/launch/hosts/run_on_hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/text.h"
#include "unisono/launch/hosts/hosts_run.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/program.h"
#include "unisono/launch/run.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/launchers/variables.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/this_node.h"

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
    refuse(fmt::format("\"{}\" is not a number of ranks from 1 to {}; write alpha:4 for 4 ranks",
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

// Returns the offset of the number of ranks in "alpha:4", after the colon. An IPv6 address needs
// brackets before such a number.
std::size_t find_workers(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  const bool is_behind_host =
      host.starts_with('[') ? colon == host.find(']') + 1 && colon != 0 : colon == host.find(':');
  return colon == std::string_view::npos || !is_behind_host ? std::string_view::npos : colon + 1;
}

// Collects the hosts of a list, in the order of their first occurrence.
class HostCollector {
 public:
  // Adds the hosts of a text in a format of a launcher or batch system. A line of a file
  // (`is_line`) names a single host, except in formats that give a number of ranks for each host.
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

  // Adds a line of PE_HOSTFILE, "alpha 4 all.q@alpha UNDEFINED". The last word may be a list of
  // cores. Returns false if the line has another format.
  bool add_grid_engine(const Words& words) {
    const bool has_queue = (words.size() == 3 || words.size() == 4) &&
                           words[2].find('@') != std::string_view::npos && !is_number(words.back());
    const std::optional<int> n_workers = has_queue ? try_parse_workers(words[1]) : std::nullopt;
    if (n_workers) {
      add_entry(words[0], n_workers);
    }
    return n_workers.has_value();
  }

  // Returns the hosts. If names without a number are repeated, each occurrence stands for one rank.
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

  // Reads the format of Open MPI, "alpha slots=4 max_slots=8".
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

  // Returns true for the format of LSF's LSB_MCPU_HOSTS, "alpha 4 beta 2".
  static bool are_pairs(const Words& words) {
    bool are_all = words.size() % 2 == 0;
    for (std::size_t i = 1; i < words.size() && are_all; i += 2) {
      are_all = try_parse_workers(words[i]) && !try_parse_workers(words[i - 1]);
    }
    return are_all;
  }

  // Removes "me@" from "me@alpha:4" and returns it; returns an empty text if there is no user name.
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

  // Adds an entry such as "alpha", "me@alpha:4", LSF's "4*alpha", "node[1-3]:2" or "[fd77::1]:2".
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
    // The remote shell would take such a name for an option.
    if (name.starts_with('-')) {
      refuse(fmt::format("\"{}\" is not the name of a host", escape_text(name)));
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
  std::vector<int> n_times_;  // Number of occurrences of each host.
  std::unordered_map<std::string, std::size_t> index_of_;
  bool is_any_repeated_ = false;
};

// Returns the parts of a list between commas that are outside brackets.
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

// The file may be a pipe, as in <(scontrol show hostnames).
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
    refuse(fmt::format("{} lists no hosts", path));
  }
  return hosts.finish();
}

namespace {

std::string own_path() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw system_error("can't find this program's own file", error.value());
  }
  return path.string();
}

std::string current_directory() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  if (error) {
    throw system_error("the current folder no longer exists", error.value());
  }
  return path.string();
}

// Quotes a word for any POSIX shell.
std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char letter : word) {
    result += letter == '\'' ? "'\\''" : std::string(1, letter);
  }
  return result + "'";
}

// Returns the address without the user: "me@alpha" gives "alpha".
std::string address_of(const Host& host) {
  return host.name.substr(host.name.rfind('@') + 1);
}

bool is_loopback(const std::string& name) {
  return net::is_this_machine(name) && net::resolve(name, 0).front().is_loopback();
}

// Returns an address of the first host that all hosts can reach.
std::string meeting_address(const HostsRequest& request) {
  if (!request.master_addr.empty()) {
    return request.master_addr;
  }
  const auto leads_here = [](const Host& host) { return is_loopback(address_of(host)); };
  const bool are_all_here = std::ranges::all_of(request.hosts, leads_here);
  const Host& first = request.hosts.front();
  return leads_here(first) && !are_all_here ? rendezvous::host_name() : address_of(first);
}

// Returns a port below the kernel's range of ephemeral ports. Two jobs rarely choose the same port.
std::uint16_t random_port() {
  std::random_device device;
  return std::uniform_int_distribution<std::uint16_t>(20'000, 31'999)(device);
}

// Returns the variables that the hosts need: settings of this library and of its launcher, and the
// variables that the user names. Secrets are left out.
std::vector<std::string> variables(const HostsRequest& request) {
  const Environment environment = process_environment();
  std::vector<std::string> result;
  for (const char* const prefix : {"UNISONO_", "PET_", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"}) {
    for (const std::string& name : process_variables(prefix)) {
      if (!name.starts_with("UNISONO_SECRET")) {
        result.push_back(name + "=" + environment(name.c_str()).value_or(""));
      }
    }
  }
  result.insert(result.end(), request.variables.begin(), request.variables.end());
  return result;
}

// Returns the part of the command line that is equal for all hosts. Options of a host follow it and
// take precedence.
std::vector<std::string> common_arguments(const HostsRequest& request, bool are_several) {
  std::vector<std::string> arguments = request.command;
  arguments.insert(arguments.end(),
                   {"--prefix", "--nnodes", fmt::format("{}", request.hosts.size())});
  if (are_several) {
    const std::uint16_t port = request.master_port == 0 ? random_port() : request.master_port;
    arguments.insert(
        arguments.end(),
        {"--master-addr", meeting_address(request), "--master-port", fmt::format("{}", port)});
  }
  return arguments;
}

Begin make_begin(const HostsRequest& request) {
  constexpr std::size_t kSecretBytes = 32;
  const base::Config config = read_config(process_environment());
  const std::string secret = rendezvous::is_secret_given(config)
                                 ? rendezvous::find_secret(config, request.hosts.front().name)
                                 : random_hex(kSecretBytes);
  return {.secret = secret,
          .directory = current_directory(),
          .variables = variables(request),
          .arguments = common_arguments(request, request.hosts.size() > 1)};
}

}  // namespace

int run_on_hosts(const HostsRequest& request) {
  const std::string self = own_path();
  const std::string command = quoted(self) + " " + kHostArgument;
  const std::vector<std::string>& shell = request.remote_shell;
  const Begin common = make_begin(request);
  HostsRun run(request);
  for (std::size_t i = 0; i < request.hosts.size(); ++i) {
    const Host& host = request.hosts[i];
    Begin begin = common;
    begin.label = host.name;
    begin.arguments.insert(begin.arguments.end(), {"--node-rank", fmt::format("{}", i)});
    if (host.n_workers) {
      begin.arguments.insert(begin.arguments.end(),
                             {"--nproc-per-node", fmt::format("{}", *host.n_workers)});
    }
    begin.arguments.emplace_back("--");
    begin.arguments.insert(begin.arguments.end(), request.program.begin(), request.program.end());
    const bool is_remote = !shell.empty() || !net::is_this_machine(address_of(host));
    if (is_remote) {
      std::vector<std::string> argv = shell.empty() ? std::vector<std::string>{"ssh"} : shell;
      argv.insert(argv.end(), {host.name, command});
      run.start(
          find_program({.argv = argv, .no_python = true}, process_environment()), begin, true);
    } else {
      run.start({.path = self, .argv = {self, kHostArgument}}, begin, false);
    }
  }
  return run.finish();
}

}  // namespace unisono::launch::hosts
