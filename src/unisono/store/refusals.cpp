#include "unisono/store/refusals.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <system_error>

#include "unisono/base/text.h"

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
      "{}: the value of {} is not a decimal number: {}", call, shown_key(key), shown(value));
}

namespace {

void check_count(const Limits& limits, std::size_t n_keys) {
  if (n_keys > limits.max_count) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "store: {} keys in one request; at most {} are allowed", n_keys, limits.max_count));
  }
}

// Counts a key as the server does.
std::size_t n_key_bytes(const std::string& key) {
  return kKeyPrefix.size() + key.size() + kStringOverhead;
}

void check_request(const Limits& limits, std::size_t n_bytes) {
  if (n_bytes > limits.max_request_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store: a request of {} bytes; at most {} are allowed, so use several",
                            n_bytes,
                            limits.max_request_bytes));
  }
}

}  // namespace

void check_sizes(const Limits& limits, const std::string& key, std::size_t n_value_bytes) {
  if (key.size() + kKeyPrefix.size() > limits.max_key_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store: a key of {} bytes (\"{}...\"); at most {} are allowed",
                            key.size(),
                            as_utf8(utf8_prefix(key, 40)),
                            limits.max_key_bytes - kKeyPrefix.size()));
  }
  if (n_value_bytes > limits.max_value_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store: the value for \"{}\" has {} bytes; at most {} are allowed",
                            key,
                            n_value_bytes,
                            limits.max_value_bytes));
  }
}

void check_sizes(const Limits& limits, std::span<const std::string> keys) {
  check_count(limits, keys.size());
  std::size_t n_bytes = 0;
  for (const std::string& key : keys) {
    check_sizes(limits, key, 0);
    n_bytes += n_key_bytes(key);
  }
  check_request(limits, n_bytes);
}

void check_sizes(const Limits& limits, std::span<const Store::KeyValue> pairs) {
  check_count(limits, pairs.size());
  std::size_t n_bytes = 0;
  for (const auto& [key, value] : pairs) {
    check_sizes(limits, key, value.size());
    n_bytes += n_key_bytes(key) + value.size() + kStringOverhead;
  }
  check_request(limits, n_bytes);
}

namespace {

double seconds_since(Deadline::Clock::time_point start) {
  return std::chrono::duration<double>(Deadline::Clock::now() - start).count();
}

}  // namespace

Error missing_keys(const std::string& store,
                   const char* call,
                   std::span<const std::string> keys,
                   const std::function<bool(const std::string&)>& is_there,
                   Deadline::Clock::time_point start) {
  // Each query may cost a round trip.
  constexpr std::size_t kMaxAsked = 64;
  constexpr std::size_t kMaxNamed = 8;
  const double spent_s = seconds_since(start);
  std::string names;
  std::size_t n_named = 0;
  for (const std::string& key : keys.first(std::min(keys.size(), kMaxAsked))) {
    if (n_named == kMaxNamed) {
      names += ", ...";
      break;
    }
    if (keys.size() == 1 || !is_there(key)) {
      names += fmt::format("{}\"{}\"", n_named == 0 ? "" : ", ", key);
      ++n_named;
    }
  }
  return {
      ErrorCode::kTimeout,
      fmt::format("{}: {}: no {} within {:.1f} s",
                  store,
                  call,
                  names.empty() ? fmt::format("complete set of the {} keys", keys.size()) : names,
                  spent_s)};
}

Error incomplete_barrier(const std::string& store,
                         const std::string& key,
                         const std::string& n_came,
                         std::int64_t world_size,
                         Deadline::Clock::time_point start) {
  return {ErrorCode::kTimeout,
          fmt::format("{}: barrier \"{}\": {} of {} came within {:.1f} s",
                      store,
                      key,
                      n_came,
                      world_size,
                      seconds_since(start))};
}

}  // namespace unisono::store
