#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace unisono::rendezvous {

/// How ranks are to meet, as "scheme://host:port/path?name=value&...": every part but the scheme
/// may be missing.
struct InitMethod {
  std::string text;    ///< The whole, for messages.
  std::string scheme;  ///< "env", "tcp", "file", or one that somebody registered.
  std::string host;    ///< Without the brackets of an IPv6 address.
  std::optional<std::uint16_t> port;
  std::string path;  ///< From the first '/' on.
  std::map<std::string, std::string> query;

  /// A number of the query that is at least `least`; nothing where it is not given.
  ///
  /// Throws Error(kInvalidArgument) for anything else.
  [[nodiscard]] std::optional<int> number(const std::string& name, int least) const;
};

/// Whether it can stand before "://": small letters, digits, +, - and dots.
[[nodiscard]] bool is_scheme(std::string_view text);

/// Takes it apart. "%20" and the like stand for bytes in path and query.
///
/// Throws Error(kInvalidArgument) that shows the text and what is wrong with it.
[[nodiscard]] InitMethod parse_init_method(const std::string& text);

}  // namespace unisono::rendezvous
