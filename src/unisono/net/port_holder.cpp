#include "unisono/net/port_holder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <set>
#include <string>
#include <system_error>

#include "unisono/net/tcp_table.h"

namespace unisono::net {
namespace {

namespace fs = std::filesystem;

// As the kernel writes the state of a listener.
constexpr const char* kListen = "0A";

// Adds "socket:[INODE]" of each socket that listens on the port.
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
  // Not an iterator, which would throw if the process has just ended.
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

}  // namespace unisono::net
