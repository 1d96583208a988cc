#include "unisono/launch/nodes/messages.h"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "unisono/base/bytes.h"

namespace unisono::launch::nodes {
namespace {

template <class T, class U>
concept MaybeConst = std::same_as<std::remove_const_t<T>, U>;

// Calls `visit` with each member, in the order of the bytes.
template <class Visitor, MaybeConst<Join> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.host);
  visit(message.pid);
  visit(message.n_workers);
  visit(message.wanted_rank);
  visit(message.min_nodes);
  visit(message.max_nodes);
  visit(message.run_id);
  visit(message.is_coordinator);
}

template <class Visitor, MaybeConst<Failed> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.generation);
  visit(message.exit_code);
  visit(message.what);
}

template <class Visitor, MaybeConst<Over> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.generation);
  visit(message.report);
}

template <class Visitor, MaybeConst<Leave> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.exit_code);
  visit(message.why);
}

template <class Visitor, MaybeConst<Refused> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.why);
}

template <class Visitor, MaybeConst<Notice> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.text);
}

template <class Visitor, MaybeConst<Start> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.generation);
  visit(message.node_rank);
  visit(message.n_nodes);
  visit(message.first_rank);
  visit(message.world_size);
  visit(message.restart_count);
  visit(message.max_restarts);
  visit(message.run_id);
  visit(message.has_store);
  visit(message.master_port);
}

template <class Visitor, MaybeConst<Stop> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.generation);
  visit(message.why);
}

template <class Visitor, MaybeConst<End> T>
void visit_members(const Visitor& visit, T& message) {
  visit(message.exit_code);
  visit(message.report);
}

template <class Visitor, MaybeConst<Alive> T>
void visit_members(const Visitor& /*visit*/, T& /*message*/) {}

struct Writer {
  ByteWriter& out;

  void operator()(const std::string& text) const {
    out.put_string(std::string_view(text).substr(0, kMaxTextBytes));
  }

  void operator()(bool value) const { out.put(static_cast<std::uint8_t>(value)); }

  void operator()(std::integral auto value) const { out.put(value); }
};

struct Reader {
  ByteReader& in;
  bool& is_whole;

  void operator()(std::string& text) const { store(in.get_string(kMaxTextBytes), text); }

  void operator()(bool& value) const {
    const std::optional<std::uint8_t> byte = in.get<std::uint8_t>();
    is_whole = is_whole && byte && *byte <= 1;
    value = byte == 1;
  }

  template <std::integral T>
  void operator()(T& value) const {
    store(in.get<T>(), value);
  }

  template <class T>
  void store(std::optional<T> read, T& value) const {
    is_whole = is_whole && read;
    if (read) {
      value = std::move(*read);
    }
  }
};

template <class T>
std::optional<Message> read(ByteReader& in) {
  T message{};
  bool is_whole = true;
  visit_members(Reader{in, is_whole}, message);
  return is_whole ? std::optional<Message>(std::move(message)) : std::nullopt;
}

// The type byte is the alternative's index in Message.
template <std::size_t... indices>
std::optional<Message> read_body(std::size_t type,
                                 ByteReader& in,
                                 std::index_sequence<indices...> /*types*/) {
  using Read = std::optional<Message> (*)(ByteReader&);
  constexpr std::array<Read, sizeof...(indices)> kReads{
      read<std::variant_alternative_t<indices, Message>>...};
  return type < kReads.size() ? kReads[type](in) : std::nullopt;
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& alternative) { visit_members(Writer{out}, alternative); }, message);
  return std::move(out).bytes();
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const std::optional<std::uint8_t> type = in.get<std::uint8_t>();
  if (!type) {
    return std::nullopt;
  }
  const std::optional<Message> message =
      read_body(*type, in, std::make_index_sequence<std::variant_size_v<Message>>());
  return in.rest().empty() ? message : std::nullopt;
}

}  // namespace unisono::launch::nodes
