#include "unisono/net/multicast.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "unisono/base/error.h"

namespace unisono::net {
namespace {

constexpr std::size_t kMaxPacketBytes = std::size_t{64} << 10;

const sockaddr_in& v4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(*address.data());
}

const sockaddr_in6& v6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(*address.data());
}

Fd open_udp(int family) {
  Fd fd = Fd::open_unshared(
      [&] { return ::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!fd.is_open()) {
    throw system_error("socket", errno);
  }
  return fd;
}

template <class T>
int set_option(int fd, int level, int name, const T& value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0 ? 0 : errno;
}

// Limits the socket to its own memberships. By default a socket also receives packets of a group
// that another process has joined on another interface.
int hear_own_interfaces_alone(int fd, int family) {
  return family == AF_INET ? set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0)
                           : set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
}

// Makes the kernel report the receiving interface of each packet.
int tell_interfaces(int fd, int family) {
  return family == AF_INET ? set_option(fd, IPPROTO_IP, IP_PKTINFO, 1)
                           : set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
}

template <class T>
T content_of(cmsghdr& part) {
  T content{};
  std::memcpy(&content, CMSG_DATA(&part), sizeof content);
  return content;
}

// Returns the index of the receiving interface, 0 if the message does not contain it.
unsigned interface_of(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_PKTINFO) {
      return static_cast<unsigned>(content_of<in_pktinfo>(*part).ipi_ifindex);
    }
    if (part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_PKTINFO) {
      return content_of<in6_pktinfo>(*part).ipi6_ifindex;
    }
  }
  return 0;
}

// Returns 0, or the errno of the failure.
int join_on(int fd, const Address& group, unsigned interface) {
  if (group.family() == AF_INET) {
    ip_mreqn request{};
    request.imr_multiaddr = v4(group).sin_addr;
    request.imr_ifindex = static_cast<int>(interface);
    return set_option(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, request);
  }
  ipv6_mreq request{};
  request.ipv6mr_multiaddr = v6(group).sin6_addr;
  request.ipv6mr_interface = interface;
  return set_option(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, request);
}

// Selects the sending interface and, for IPv4, the source address: on loopback the kernel would
// otherwise use the address of another interface.
int send_from(const Address& own, unsigned interface, int fd) {
  if (own.family() == AF_INET) {
    ip_mreqn request{};
    request.imr_ifindex = static_cast<int>(interface);
    request.imr_address = v4(own).sin_addr;
    return set_option(fd, IPPROTO_IP, IP_MULTICAST_IF, request);
  }
  return set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(interface));
}

int send_to(const Address& group, int fd, std::span<const std::byte> bytes) {
  const ssize_t n =
      ::sendto(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL, group.data(), group.size());
  return n < 0 ? errno : 0;
}

std::string reason_of(const std::string& interface, int error_number) {
  return fmt::format("{}: {}", interface, std::generic_category().message(error_number));
}

Error impossible(const Address& group, const std::string& reasons) {
  return {ErrorCode::kSystem,
          fmt::format("multicast to {} is impossible here ({}); give the group's interface a route "
                      "or meet by tcp://HOST:PORT",
                      group.to_string(),
                      reasons.empty() ? "no interface is up and has such an address" : reasons)};
}

}  // namespace

MulticastSocket::MulticastSocket(const Address& group, const std::vector<Interface>& interfaces)
    : group_(group), fd_(open_udp(group.family())) {
  if (!group.is_multicast()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is not a multicast address", group.to_string()));
  }
  if (group.family() == AF_INET6 && IN6_IS_ADDR_MC_LINKLOCAL(&v6(group).sin6_addr) &&
      v6(group).sin6_scope_id == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("multicast group {} is link-local, and needs an interface: take a "
                            "group of wider scope, such as ff15::1",
                            group.to_string()));
  }
  if (const int error_number = set_option(fd_.get(), SOL_SOCKET, SO_REUSEADDR, 1)) {
    throw system_error("SO_REUSEADDR", error_number);
  }
  if (const int error_number = hear_own_interfaces_alone(fd_.get(), group.family())) {
    throw system_error("IP_MULTICAST_ALL", error_number);
  }
  if (const int error_number = tell_interfaces(fd_.get(), group.family())) {
    throw system_error("IP_PKTINFO", error_number);
  }
  if (::bind(fd_.get(), group.data(), group.size()) != 0) {
    throw system_error("bind to multicast group " + group.to_string(), errno);
  }
  join(interfaces);
}

void MulticastSocket::join(const std::vector<Interface>& interfaces) {
  std::string reasons;
  for (const Interface& interface : interfaces) {
    const auto own = std::find_if(
        interface.addresses.begin(), interface.addresses.end(), [this](const Address& address) {
          return address.family() == group_.family();
        });
    if (!interface.is_up || own == interface.addresses.end()) {
      continue;
    }
    const int error_number = join_on(fd_.get(), group_, interface.index);
    if (error_number == 0) {
      ways_.push_back({.interface = interface.index, .name = interface.name, .address = *own});
    } else {
      reasons += (reasons.empty() ? "" : ", ") + reason_of(interface.name, error_number);
    }
  }
  if (ways_.empty()) {
    throw impossible(group_, reasons);
  }
}

void MulticastSocket::send(std::span<const std::byte> bytes) {
  std::string reasons;
  bool is_sent = false;
  for (const Way& way : ways_) {
    int error_number = send_from(way.address, way.interface, fd_.get());
    if (error_number == 0) {
      error_number = send_to(group_, fd_.get(), bytes);
    }
    // A full send buffer counts as success, because announcements are repeated.
    is_sent = is_sent || error_number == 0 || error_number == EAGAIN || error_number == ENOBUFS;
    if (error_number != 0) {
      reasons += (reasons.empty() ? "" : ", ") + reason_of(way.name, error_number);
    }
  }
  if (!is_sent) {
    throw impossible(group_, reasons);
  }
}

std::optional<MulticastSocket::Packet> MulticastSocket::receive() {
  std::vector<std::byte> bytes(kMaxPacketBytes);
  sockaddr_storage from{};
  iovec content{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(in6_pktinfo))> notes{};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = notes.data();
  message.msg_controllen = notes.size();
  const ssize_t n = ::recvmsg(fd_.get(), &message, 0);
  if (n < 0) {
    return std::nullopt;
  }
  bytes.resize(static_cast<std::size_t>(n));
  const std::optional<Address> address = Address::from_sockaddr(from);
  if (!address) {
    return std::nullopt;
  }
  return Packet{.bytes = std::move(bytes), .from = *address, .interface = interface_of(message)};
}

}  // namespace unisono::net
