#include "unisono/store/refusals.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "unisono/base/utf8.h"
#include "unisono/store/protocol.h"

namespace unisono::store {
namespace {

std::string shown(std::string_view text) {
  constexpr std::size_t kMostBytes = 64;
  const std::string_view beginning = utf8_prefix(text, kMostBytes);
  std::string result = as_utf8(beginning);
  std::replace_if(
      result.begin(),
      result.end(),
      [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; },
      '?');
  return fmt::format("\"{}{}\"", result, beginning.size() < text.size() ? "..." : "");
}

}  // namespace

const char* name_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kValidate:
      return "validate";
    case Opcode::kSet:
      return "set";
    case Opcode::kCompareSet:
      return "compare_set";
    case Opcode::kGet:
      return "get";
    case Opcode::kAdd:
      return "add";
    case Opcode::kCheck:
      return "check";
    case Opcode::kWait:
      return "wait";
    case Opcode::kNumKeys:
      return "num_keys";
    case Opcode::kDeleteKey:
      return "delete_key";
    case Opcode::kAppend:
      return "append";
    case Opcode::kMultiGet:
      return "multi_get";
    case Opcode::kMultiSet:
      return "multi_set";
    case Opcode::kCancelWait:
      return "cancel_wait";
    case Opcode::kPing:
      return "ping";
    case Opcode::kQueuePush:
      return "queue_push";
    case Opcode::kQueuePop:
      return "queue_pop";
    case Opcode::kQueueLen:
      return "queue_len";
    case Opcode::kListKeys:
      return "list_keys";
    case Opcode::kBarrier:
      return "barrier";
    case Opcode::kVersion:
      return "version";
    case Opcode::kWatch:
      return "watch";
    case Opcode::kUnwatch:
      return "unwatch";
    case Opcode::kSetAtEnd:
      return "set_at_end";
    case Opcode::kExplain:
      return "explain";
  }
  return "?";
}

std::string shown_key(std::string_view key) {
  return shown(key.starts_with(kKeyPrefix) ? key.substr(kKeyPrefix.size()) : key);
}

std::string no_sum(const char* call,
                   std::string_view key,
                   const std::string& value,
                   std::int64_t delta) {
  std::int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc() && stop == end) {
    return fmt::format("{}: {} and the value of {}, {}, make a sum beyond 64 bits",
                       call,
                       delta,
                       shown_key(key),
                       value);
  }
  return fmt::format(
      "{}: the value of {} is no decimal number: {}", call, shown_key(key), shown(value));
}

}  // namespace unisono::store
