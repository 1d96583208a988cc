#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace unisono::net {

/// A row of /proc/net/tcp or tcp6; addresses and state in the kernel's hexadecimal.
struct TcpRow {
  std::string local;
  std::string remote;
  std::string state;
  uid_t user;
  std::string inode;
};

/// Calls `visit` with each row of the table at `path`, until it returns false.
void read_tcp_table(const char* path, const std::function<bool(const TcpRow&)>& visit);

}  // namespace unisono::net
