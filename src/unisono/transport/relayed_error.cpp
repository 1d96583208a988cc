#include "unisono/transport/relayed_error.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/error.h"

namespace unisono::transport {
namespace {

constexpr std::string_view kGaveUp = " gave up: ";

// As ranks are named: "rank 2 (pid 5 on a)".
constexpr std::string_view kNameBegin = "rank ";

struct Relay {
  std::string_view name;
  std::string_view cause;
};

// The last rank that `text` quotes, and its words; nothing if it quotes none.
std::optional<Relay> last_relay(std::string_view text) {
  const std::size_t end = text.rfind(kGaveUp);
  const std::size_t begin =
      end == std::string_view::npos ? end : text.substr(0, end).rfind(kNameBegin);
  if (begin == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view name = text.substr(begin, end - begin);
  // Else these are words of the program's own.
  const bool is_name = name.ends_with(')') && name.find(": ") == std::string_view::npos;
  return is_name ? std::optional(Relay{.name = name, .cause = text.substr(end + kGaveUp.size())})
                 : std::nullopt;
}

}  // namespace

Error relayed(const std::string& name, const Error& reason) {
  const Relay relay = last_relay(reason.what()).value_or(Relay{name, reason.what()});
  return {reason.code(), fmt::format("{}{}{}", relay.name, kGaveUp, relay.cause)};
}

std::string_view root_cause(std::string_view text) {
  return last_relay(text).value_or(Relay{.name = {}, .cause = text}).cause;
}

}  // namespace unisono::transport
