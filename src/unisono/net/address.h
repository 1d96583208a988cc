#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace unisono::net {

/// A numeric IP address, v4 or v6, and a port.
class Address {
 public:
  /// Nothing when `ip` is not a numeric address ("10.0.0.2", "::1", "[::1]",
  /// "fe80::1%eth0").
  [[nodiscard]] static std::optional<Address> parse(const std::string& ip, std::uint16_t port);

  /// All addresses of this machine: 0.0.0.0 or ::, for AF_INET or AF_INET6.
  [[nodiscard]] static Address any(int family, std::uint16_t port);

  /// 127.0.0.1.
  [[nodiscard]] static Address loopback(std::uint16_t port);

  /// Nothing when `address` is of a family other than IP.
  [[nodiscard]] static std::optional<Address> from_sockaddr(const sockaddr_storage& address);

  [[nodiscard]] std::string ip() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] bool is_loopback() const;

  /// True for 0.0.0.0 and ::, "all of this machine's addresses".
  [[nodiscard]] bool is_wildcard() const;

  /// True for 224.0.0.0/4 and ff00::/8.
  [[nodiscard]] bool is_multicast() const;

  /// The IP address; an IPv4 address in its IPv6 form, "::ffff:10.0.0.2".
  [[nodiscard]] in6_addr ipv6() const;

  /// "10.0.0.2:4123" or "[::1]:4123".
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] const sockaddr* data() const;
  [[nodiscard]] socklen_t size() const;

  [[nodiscard]] int family() const { return storage_.ss_family; }

  friend bool operator==(const Address& a, const Address& b) {
    return a.to_string() == b.to_string();
  }

 private:
  explicit Address(const sockaddr_storage& storage) : storage_(storage) {}

  sockaddr_storage storage_;
};

/// What who connects does when a host says that nobody listens there.
enum class IfRefused {
  kTryAgain,  ///< Who is to listen may not have come yet.
  kGiveUp,    ///< Who listened there is gone.
};

/// The addresses of a host name or numeric address, best first. Blocks while the name is looked up.
///
/// Throws Error with the host, the port if it is not 0, and the reason: kInvalidArgument where no
/// machine can have such a name or address, so that no other try helps; kNotFound where there is no
/// address for it.
[[nodiscard]] std::vector<Address> resolve(const std::string& host, std::uint16_t port);

}  // namespace unisono::net
