#include "unisono/launch/port.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"

namespace unisono::launch {
namespace {

// The inode of the socket that listens on `port`, from /proc/net/tcp or tcp6.
std::optional<std::string> listening_inode(const char* table, std::uint16_t port) {
  constexpr const char* kListen = "0A";
  const std::string wanted = fmt::format(":{:04X}", port);
  std::ifstream file(table);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot;
    std::string local;
    std::string remote;
    std::string state;
    std::string skipped;
    std::string inode;
    fields >> slot >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) {
      fields >> skipped;
    }
    fields >> inode;
    if (state == kListen && local.ends_with(wanted)) {
      return inode;
    }
  }
  return std::nullopt;
}

// " by process 123 (name)", or nothing when it can't be seen.
std::string describe_holder(std::uint16_t port) {
  std::optional<std::string> inode = listening_inode("/proc/net/tcp", port);
  if (!inode) {
    inode = listening_inode("/proc/net/tcp6", port);
  }
  if (!inode) {
    return "";
  }
  const std::string wanted = "socket:[" + *inode + "]";
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    std::error_code unreadable;
    for (const auto& fd : std::filesystem::directory_iterator(process.path() / "fd", unreadable)) {
      if (std::filesystem::read_symlink(fd.path(), unreadable) == wanted) {
        std::string name;
        std::ifstream comm(process.path() / "comm");
        std::getline(comm, name);
        return fmt::format(" by process {} ({})", process.path().filename().string(), name);
      }
    }
  }
  return "";
}

}  // namespace

PortReservation::PortReservation(std::uint16_t port)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), port_(port) {
  if (!socket_.is_open()) {
    throw system_error("socket", errno);
  }
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket_.get(), generic, size) != 0) {
    const int error_number = errno;
    throw system_error(
        fmt::format("port {} (--master-port) can't be used{}; name another, or leave it out and a "
                    "free one is chosen",
                    port,
                    error_number == EADDRINUSE ? ", it is in use" + describe_holder(port) : ""),
        error_number);
  }
  if (::getsockname(socket_.get(), generic, &size) != 0) {
    throw system_error("getsockname", errno);
  }
  port_ = ntohs(address.sin_port);
}

}  // namespace unisono::launch
