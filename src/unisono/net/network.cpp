#include "unisono/net/network.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

#include "unisono/net/address.h"

namespace unisono::net {
namespace {

constexpr int kIpv4Bits = 32;
constexpr int kIpv6Bits = 128;

bool bit_of(const in6_addr& ip, int index) {
  return (ip.s6_addr[index / 8] >> (7 - index % 8) & 1) != 0;
}

bool has_same_bits(const in6_addr& a, const in6_addr& b, int n_bits) {
  for (int index = 0; index < n_bits; ++index) {
    if (bit_of(a, index) != bit_of(b, index)) {
      return false;
    }
  }
  return true;
}

std::optional<int> parse_n_bits(const std::string& text, int most) {
  int n_bits = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, n_bits);
  const bool is_valid = error == std::errc() && stop == end && n_bits >= 0 && n_bits <= most;
  return is_valid ? std::optional(n_bits) : std::nullopt;
}

}  // namespace

std::optional<Network> Network::parse(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::optional<Address> address = Address::parse(text.substr(0, slash), 0);
  if (!address) {
    return std::nullopt;
  }
  const int most = address->family() == AF_INET ? kIpv4Bits : kIpv6Bits;
  const std::optional<int> n_bits =
      slash == std::string::npos ? most : parse_n_bits(text.substr(slash + 1), most);
  if (!n_bits) {
    return std::nullopt;
  }
  const Network network(address->ipv6(), *n_bits + kIpv6Bits - most);
  for (int index = network.n_bits_; index < kIpv6Bits; ++index) {
    if (bit_of(network.first_, index)) {
      return std::nullopt;
    }
  }
  return network;
}

bool Network::contains(const Address& address) const {
  return has_same_bits(first_, address.ipv6(), n_bits_);
}

}  // namespace unisono::net
