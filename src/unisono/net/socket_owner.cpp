#include "unisono/net/socket_owner.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "unisono/net/address.h"
#include "unisono/net/tcp_table.h"

namespace unisono::net {
namespace {

constexpr const char* kEstablished = "01";

std::uint32_t word_of(const in6_addr& ip, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, &ip.s6_addr[4 * index], sizeof(word));
  return word;
}

// As the kernel prints them: words in the machine's byte order.
std::string v6_entry(const Address& address) {
  const in6_addr ip = address.ipv6();
  return fmt::format("{:08X}{:08X}{:08X}{:08X}:{:04X}",
                     word_of(ip, 0),
                     word_of(ip, 1),
                     word_of(ip, 2),
                     word_of(ip, 3),
                     address.port());
}

// Of an IPv4 address, in whichever form.
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

}  // namespace unisono::net
