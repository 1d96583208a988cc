#include "unisono/rendezvous/key_value_space/pmi_message.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace unisono::rendezvous {

std::optional<PmiMessage> parse_pmi(std::string_view line) {
  PmiMessage message;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (word.empty()) {
      continue;
    }
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0 ||
        !message.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      return std::nullopt;
    }
  }
  return message.contains("cmd") ? std::optional(message) : std::nullopt;
}

std::string_view value_of(const PmiMessage& message, std::string_view name) {
  const auto found = message.find(name);
  return found == message.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace unisono::rendezvous
