#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace unisono::rendezvous {

/// An answer of the PMI-1 protocol: a line of words "name=value", "cmd" among them.
using PmiMessage = std::map<std::string, std::string, std::less<>>;

/// Takes a line, without its end, apart. Nothing if a word is no name=value, a name is empty or
/// comes twice, or there is no cmd.
[[nodiscard]] std::optional<PmiMessage> parse_pmi(std::string_view line);

}  // namespace unisono::rendezvous
