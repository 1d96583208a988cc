#include "unisono/launch/process/protocol.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "unisono/base/bytes.h"

namespace unisono::launch {
namespace {

struct Writer {
  ByteWriter& out;

  void operator()(const Spawn& message) const {
    out.put(message.local_rank);
    out.put(static_cast<std::uint32_t>(message.environment.size()));
    for (const std::string& entry : message.environment) {
      out.put_string(entry);
    }
    out.put_string(message.argument);
    out.put(message.argument_at);
  }

  void operator()(const Signal& message) const { out.put(message.signal_number); }

  void operator()(const KillAll& /*unused*/) const {}

  void operator()(const Started& message) const {
    out.put(message.local_rank);
    out.put(message.pid);
  }

  void operator()(const SpawnFailed& message) const {
    out.put(message.local_rank);
    out.put(message.error_number);
  }

  void operator()(const Exited& message) const {
    out.put(message.local_rank);
    out.put(message.status);
  }

  void operator()(const Idle& /*unused*/) const {}

  void operator()(const Stuck& message) const {
    out.put(static_cast<std::uint32_t>(message.pids.size()));
    for (const std::int32_t pid : message.pids) {
      out.put(pid);
    }
  }
};

template <class T>
std::optional<T> read_pair(ByteReader& in) {
  const std::optional<std::int32_t> first = in.get<std::int32_t>();
  const std::optional<std::int32_t> second = in.get<std::int32_t>();
  if (!first || !second) {
    return std::nullopt;
  }
  return T{*first, *second};
}

std::optional<Spawn> read_spawn(ByteReader& in) {
  const std::optional<std::int32_t> local_rank = in.get<std::int32_t>();
  const std::optional<std::uint32_t> n_entries = in.get<std::uint32_t>();
  if (!local_rank || !n_entries) {
    return std::nullopt;
  }
  Spawn message{.local_rank = *local_rank, .environment = {}};
  for (std::uint32_t i = 0; i < *n_entries; ++i) {
    std::optional<std::string> entry = in.get_string(kMaxMessageBytes);
    if (!entry) {
      return std::nullopt;
    }
    message.environment.push_back(std::move(*entry));
  }
  std::optional<std::string> argument = in.get_string(kMaxMessageBytes);
  const std::optional<std::uint32_t> argument_at = in.get<std::uint32_t>();
  if (!argument || !argument_at) {
    return std::nullopt;
  }
  message.argument = std::move(*argument);
  message.argument_at = *argument_at;
  return message;
}

std::optional<Stuck> read_stuck(ByteReader& in) {
  const std::optional<std::uint32_t> n_pids = in.get<std::uint32_t>();
  if (!n_pids) {
    return std::nullopt;
  }
  Stuck message;
  for (std::uint32_t i = 0; i < *n_pids; ++i) {
    const std::optional<std::int32_t> pid = in.get<std::int32_t>();
    if (!pid) {
      return std::nullopt;
    }
    message.pids.push_back(*pid);
  }
  return message;
}

std::optional<Signal> read_signal(ByteReader& in) {
  const std::optional<std::int32_t> signal_number = in.get<std::int32_t>();
  if (!signal_number) {
    return std::nullopt;
  }
  return Signal{*signal_number};
}

template <class T>
std::optional<Message> as_message(std::optional<T> message) {
  if (!message) {
    return std::nullopt;
  }
  return Message(std::move(*message));
}

// The type byte is the alternative's index in Message.
std::optional<Message> read_body(std::uint8_t type, ByteReader& in) {
  switch (type) {
    case 0:
      return as_message(read_spawn(in));
    case 1:
      return as_message(read_signal(in));
    case 2:
      return KillAll{};
    case 3:
      return as_message(read_pair<Started>(in));
    case 4:
      return as_message(read_pair<SpawnFailed>(in));
    case 5:
      return as_message(read_pair<Exited>(in));
    case 6:
      return Idle{};
    case 7:
      return as_message(read_stuck(in));
    default:
      return std::nullopt;
  }
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(message.index()));
  std::visit(Writer{out}, message);
  return std::move(out).bytes();
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const std::optional<std::uint8_t> type = in.get<std::uint8_t>();
  if (!type) {
    return std::nullopt;
  }
  std::optional<Message> message = read_body(*type, in);
  if (!in.rest().empty()) {
    return std::nullopt;
  }
  return message;
}

}  // namespace unisono::launch
