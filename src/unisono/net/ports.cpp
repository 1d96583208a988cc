#include "unisono/net/ports.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <set>
#include <sstream>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/thread.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

/// A row of /proc/net/tcp or tcp6. Addresses and state are in the kernel's hexadecimal format.
struct TcpRow {
  std::string local;
  std::string remote;
  std::string state;
  uid_t user;
  std::string inode;
};

/// Calls `visit` with each row of the table at `path`, until `visit` returns false.
void read_tcp_table(const char* path, const std::function<bool(const TcpRow&)>& visit) {
  std::ifstream table(path);
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string skipped;
    TcpRow row{};
    // Skipped fields: the slot; after the state the queues, timer and retransmissions; after the
    // user the timeout.
    fields >> skipped >> row.local >> row.remote >> row.state >> skipped >> skipped >> skipped >>
        row.user >> skipped >> row.inode;
    if (fields && !visit(row)) {
      return;
    }
  }
}

constexpr const char* kEstablished = "01";

std::uint32_t word_of(const in6_addr& ip, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, &ip.s6_addr[4 * index], sizeof(word));
  return word;
}

// Formats an address like the kernel: four words in host byte order.
std::string v6_entry(const Address& address) {
  const in6_addr ip = address.ipv6();
  return fmt::format("{:08X}{:08X}{:08X}{:08X}:{:04X}",
                     word_of(ip, 0),
                     word_of(ip, 1),
                     word_of(ip, 2),
                     word_of(ip, 3),
                     address.port());
}

// Formats an IPv4 address that is stored in either form.
std::string v4_entry(const Address& address) {
  return fmt::format("{:08X}:{:04X}", word_of(address.ipv6(), 3), address.port());
}

std::optional<uid_t> find_in(const char* path,
                             const std::string& local,
                             const std::string& remote) {
  std::optional<uid_t> owner;
  read_tcp_table(path, [&](const TcpRow& row) {
    if (row.state == kEstablished && row.local == local && row.remote == remote) {
      owner = row.user;
    }
    return !owner;
  });
  return owner;
}

}  // namespace

std::optional<uid_t> find_socket_owner(const Address& local, const Address& remote) {
  const in6_addr ip = local.ipv6();
  const std::optional<uid_t> owner =
      IN6_IS_ADDR_V4MAPPED(&ip) ? find_in("/proc/net/tcp", v4_entry(local), v4_entry(remote))
                                : std::nullopt;
  return owner ? owner : find_in("/proc/net/tcp6", v6_entry(local), v6_entry(remote));
}

namespace {

namespace fs = std::filesystem;

// The kernel's code for the state LISTEN.
constexpr const char* kListen = "0A";

// Adds "socket:[INODE]" for each socket that listens on the port.
void collect_listeners(const char* table, std::uint16_t port, std::set<std::string>& links) {
  const std::string port_suffix = fmt::format(":{:04X}", port);
  read_tcp_table(table, [&](const TcpRow& row) {
    if (row.state == kListen && row.local.ends_with(port_suffix)) {
      links.insert("socket:[" + row.inode + "]");
    }
    return true;
  });
}

bool holds_any(const fs::path& process, const std::set<std::string>& links) {
  std::error_code error;
  for (fs::directory_iterator it(process / "fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (links.contains(fs::read_symlink(it->path(), gone).string())) {
      return true;
    }
  }
  return false;
}

std::string command_line(const fs::path& process) {
  constexpr std::size_t kMaxBytes = 120;
  std::ifstream file(process / "cmdline", std::ios::binary);
  std::string text(4 * kMaxBytes, '\0');
  // read() instead of a stream iterator, which would throw if the process has just ended.
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\0') {
    text.pop_back();
  }
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text.size() <= kMaxBytes ? text : text.substr(0, kMaxBytes) + "...";
}

}  // namespace

std::string find_port_holder(std::uint16_t port) {
  std::set<std::string> links;
  collect_listeners("/proc/net/tcp", port, links);
  collect_listeners("/proc/net/tcp6", port, links);
  if (links.empty()) {
    return {};
  }
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool is_process = name.find_first_not_of("0123456789") == std::string::npos;
    if (is_process && holds_any(it->path(), links)) {
      return fmt::format("process {} ({})", name, command_line(it->path()));
    }
  }
  return {};
}

using std::chrono::milliseconds;

void Backoff::pause(Deadline deadline) {
  std::uniform_int_distribution<milliseconds::rep> draw(pause_.count() / 2, pause_.count());
  const milliseconds chosen(draw(random_));
  interruptible_sleep_until(earlier(Deadline::after(chosen), deadline));
  pause_ = std::min(pause_ * 2, milliseconds(500));
}

namespace {

// Sets SO_REUSEADDR. The kernel then also permits a port that other sockets with the option have
// bound without listening, and a port of closed connections in TIME_WAIT if the sockets had the
// option.
void set_shares(int fd, bool shares) {
  const int value = shares ? 1 : 0;
  if (::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value) != 0) {
    throw system_error("SO_REUSEADDR", errno);
  }
}

bool try_bind(int fd, const Address& address) {
  if (::bind(fd, address.data(), address.size()) == 0) {
    return true;
  }
  if (errno != EADDRINUSE) {
    throw system_error("bind to " + address.to_string(), errno);
  }
  return false;
}

Error all_in_use(const Address& address, const PortRange& ports) {
  const std::string holder = find_port_holder(ports.first);
  return {ErrorCode::kSystem,
          fmt::format("all ports from {} to {} are in use on {}{}; give UNISONO_PORTS more of them",
                      ports.first,
                      ports.last,
                      address.ip(),
                      holder.empty() ? "" : fmt::format(", the first by {}", holder))};
}

// Returns a closed Fd if all ports are in use at the moment.
Fd try_range(const std::string& ip,
             const PortRange& ports,
             const std::function<Fd()>& open,
             const std::function<bool(int fd)>& use) {
  Fd fd = open();
  for (const bool shares : {false, true}) {
    for (int port = ports.first; port <= ports.last; ++port) {
      const std::optional<Address> candidate = Address::parse(ip, static_cast<std::uint16_t>(port));
      set_shares(fd.get(), shares);
      if (!candidate || !try_bind(fd.get(), *candidate)) {
        continue;
      }
      set_shares(fd.get(), true);
      if (use(fd.get())) {
        return fd;
      }
      fd = open();  // A socket cannot be bound twice.
    }
  }
  return {};
}

// Number of scans when all ports are taken. A socket that is bound but about to lose the port
// blocks the port for others, and the kernel may refuse both of two simultaneous listen() calls.
// Attempts are counted instead of time, so that a process that was not scheduled meanwhile gets the
// same number of scans.
constexpr int kListenerLooks = 9;  // With pauses of half a second in total.

}  // namespace

Fd bind_in_range(const Address& address,
                 const PortRange& ports,
                 const std::function<Fd()>& open,
                 const std::function<bool(int fd)>& use) {
  Backoff backoff;
  for (int look = 1;; ++look) {
    if (Fd fd = try_range(address.ip(), ports, open, use); fd.is_open()) {
      return fd;
    }
    if (look == kListenerLooks) {
      throw all_in_use(address, ports);
    }
    backoff.pause(Deadline::never());
  }
}

namespace {

Fd open_socket(const Address& address) {
  Fd fd =
      Fd::open_unshared([&] { return ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0); });
  if (!fd.is_open()) {
    throw system_error("socket", errno);
  }
  return fd;
}

}  // namespace

PortReservation::PortReservation(const Address& address) : socket_(open_socket(address)) {
  const int on = 1;
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket_.get(), address.data(), address.size()) != 0) {
    throw system_error("reserve the port of " + address.to_string(), errno);
  }
}

PortReservation::PortReservation(const Address& address, const PortRange& ports)
    : socket_(bind_in_range(
          address, ports, [&] { return open_socket(address); }, [](int) { return true; })) {}

std::uint16_t PortReservation::port() const {
  return local_address(socket_.get()).port();
}

}  // namespace unisono::net
