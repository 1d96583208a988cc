#include "unisono/net/tcp_table.h"

#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace unisono::net {

void read_tcp_table(const char* path, const std::function<bool(const TcpRow&)>& visit) {
  std::ifstream table(path);
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string skipped;
    TcpRow row{};
    // Slot; after the state: queues, timer, retransmissions; after the user: timeout.
    fields >> skipped >> row.local >> row.remote >> row.state >> skipped >> skipped >> skipped >>
        row.user >> skipped >> row.inode;
    if (fields && !visit(row)) {
      return;
    }
  }
}

}  // namespace unisono::net
