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

// The name that `text` ends with; empty if these are words of the program's own.
std::string_view name_at_end(std::string_view text) {
  const std::size_t begin = text.rfind(kNameBegin);
  if (begin == std::string_view::npos) {
    return {};
  }
  const std::string_view name = text.substr(begin);
  const auto has = [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  return name.ends_with(')') && has(" (pid ") && !has(": ") ? name : std::string_view();
}

// The last rank that `text` quotes, and its words; nothing if it quotes none.
std::optional<Relay> last_relay(std::string_view text) {
  std::string_view before = text;
  while (true) {
    const std::size_t end = before.rfind(kGaveUp);
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    before = before.substr(0, end);
    if (const std::string_view name = name_at_end(before); !name.empty()) {
      return Relay{.name = name, .cause = text.substr(end + kGaveUp.size())};
    }
  }
}

}  // namespace

Error relayed(const std::string& name, const Error& reason) {
  const Relay relay = last_relay(reason.what()).value_or(Relay{name, reason.what()});
  return {reason.code(), fmt::format("{}{}{}", relay.name, kGaveUp, relay.cause)};
}

Error with_call(const std::string& prefix, const std::string& call, const Error& error) {
  std::string_view what = error.what();
  if (what.starts_with(prefix + " ")) {
    what.remove_prefix(prefix.size() + 1);
  }
  return {error.code(),
          what.starts_with(call + ":") ? fmt::format("{} {}", prefix, what)
                                       : fmt::format("{} {}: {}", prefix, call, what)};
}

std::string_view root_cause(std::string_view text) {
  return last_relay(text).value_or(Relay{.name = {}, .cause = text}).cause;
}

std::string_view root_rank(std::string_view text) {
  return last_relay(text).value_or(Relay{.name = text, .cause = {}}).name;
}

}  // namespace unisono::transport
