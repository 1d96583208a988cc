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
  /// Parses a numeric address ("10.0.0.2", "::1", "[::1]", "fe80::1%eth0"). Returns std::nullopt
  /// for other texts.
  [[nodiscard]] static std::optional<Address> parse(const std::string& ip, std::uint16_t port);

  /// Returns the wildcard address of a family: 0.0.0.0 for AF_INET, :: for AF_INET6.
  [[nodiscard]] static Address any(int family, std::uint16_t port);

  /// 127.0.0.1.
  [[nodiscard]] static Address loopback(std::uint16_t port);

  /// Returns std::nullopt unless the family of `address` is AF_INET or AF_INET6.
  [[nodiscard]] static std::optional<Address> from_sockaddr(const sockaddr_storage& address);

  [[nodiscard]] std::string ip() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] bool is_loopback() const;

  /// Returns true for 0.0.0.0 and ::, which stand for all addresses of this machine.
  [[nodiscard]] bool is_wildcard() const;

  /// Returns true for 224.0.0.0/4 and ff00::/8.
  [[nodiscard]] bool is_multicast() const;

  /// Returns the IP address without the port; an IPv4 address in its IPv6 form, "::ffff:10.0.0.2".
  [[nodiscard]] in6_addr ipv6() const;

  /// Returns "10.0.0.2:4123" or "[::1]:4123".
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

/// Policy for a connection that the host refuses because no process listens on the port.
enum class IfRefused {
  kTryAgain,  ///< Retry: the listener may not have started yet.
  kGiveUp,    ///< Fail: the listener has ended.
};

/// Resolves a host name or numeric address; returns the best address first. Blocks during the
/// lookup.
///
/// Throws Error with the host, the port unless it is 0, and the reason: kInvalidArgument if the
/// name or address cannot belong to any machine, so that a retry is useless; kNotFound if no
/// address was found.
[[nodiscard]] std::vector<Address> resolve(const std::string& host, std::uint16_t port);

/// A range of IP addresses with a common prefix.
class Network {
 public:
  /// Parses "10.0.0.0/8", "fd00::/16", or a single address. Returns std::nullopt for other texts
  /// and for addresses with bits after the prefix ("10.1.2.3/8").
  [[nodiscard]] static std::optional<Network> parse(const std::string& text);

  /// Returns true if the address is in the range. An IPv4 network also contains IPv4 addresses in
  /// IPv6 form ("::ffff:10.0.0.1").
  [[nodiscard]] bool contains(const Address& address) const;

 private:
  Network(const in6_addr& first, int n_bits) : first_(first), n_bits_(n_bits) {}

  in6_addr first_;
  int n_bits_;
};

}  // namespace unisono::net
