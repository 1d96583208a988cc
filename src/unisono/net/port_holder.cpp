#include "unisono/net/port_holder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

namespace unisono::net {
namespace {

namespace fs = std::filesystem;

// Adds "socket:[INODE]" of each socket that listens on the port.
void collect_listeners(const char* table, std::uint16_t port, std::set<std::string>& links) {
  constexpr const char* kListen = "0A";
  const std::string port_suffix = fmt::format(":{:04X}", port);
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
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
    if (fields && state == kListen && local.ends_with(port_suffix)) {
      links.insert("socket:[" + inode + "]");
    }
  }
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
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
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
