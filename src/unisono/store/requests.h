#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/store/protocol.h"
#include "unisono/store/store.h"

namespace unisono::store {

/// A parsed request. Only members used by the opcode are filled.
struct Request {
  Opcode opcode = Opcode::kPing;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::int64_t number = 0;  ///< Delta, world size, magic or nonce.
  std::size_t n_bytes = 0;  ///< Bytes of keys and values, with kStringOverhead for each.
};

/// Parses requests from a stream of bytes that may be cut anywhere. Reads each byte once. Memory
/// grows with the received bytes, never with a claimed length. Owned by a Session; not thread-safe.
/// Does not throw on bad input: see problem().
class RequestParser {
 public:
  explicit RequestParser(const Limits& limits) : limits_(limits) {}

  /// Consumes bytes up to the end of a request. Returns the number of consumed bytes.
  [[nodiscard]] std::size_t feed(std::span<const std::byte> bytes);

  /// Returns the request that the last feed() completed; std::nullopt if there is no complete
  /// request.
  [[nodiscard]] std::optional<Request> take();

  /// Returns the reason why the stream cannot be parsed any further, or "".
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  enum class MapStep { kOpcode, kField, kCount, kNumber, kLength, kText, kDone };

  std::size_t feed_scalar(std::span<const std::byte> bytes);
  std::size_t feed_text(std::span<const std::byte> bytes);
  void begin(std::byte opcode);
  void next_field();
  void take_scalar(std::uint64_t value);
  void take_count(std::uint64_t count);
  void take_length(std::uint64_t length);
  void expect_scalar(MapStep step, std::size_t n_bytes);

  Limits limits_;
  std::string problem_;
  MapStep step_ = MapStep::kOpcode;
  const char* fields_ = "";  // Remaining fields of the request's layout.
  const char* loop_ = "";    // Fields that repeat n_loops_ more times.
  std::uint64_t n_loops_ = 0;
  Request request_;
  std::array<std::byte, 8> scalar_{};
  std::size_t n_scalar_ = 0;         // Received bytes of scalar_.
  std::size_t n_scalar_wanted_ = 0;  // Size of the complete scalar.
  std::size_t n_text_left_ = 0;
  bool is_key_ = false;
};

/// The bytes that a server has to send to a client, in order. Large values are not copied: all
/// clients that receive the same value share a copy. Owned by the session's Answers; not
/// thread-safe.
class Replies {
 public:
  template <std::integral T>
  void put(T value) {
    own().put(value);
    n_bytes_ += sizeof(T);
  }

  void put_raw(std::span<const std::byte> raw);

  /// Appends length and text, in ByteWriter's format.
  void put_string(std::string_view text);
  void put_string(const std::shared_ptr<const std::string>& text);

  [[nodiscard]] std::size_t n_bytes() const { return n_bytes_; }

  /// The first contiguous bytes, and the contiguous bytes that follow. Valid until the next change.
  [[nodiscard]] std::span<const std::byte> first() const;
  [[nodiscard]] std::span<const std::byte> second() const;

  /// Drops the first `n_bytes`, which must exist, and frees memory.
  void drop(std::size_t n_bytes);

 private:
  // Bytes owned by the part, or a shared value.
  struct Part {
    ByteWriter own = {};
    std::shared_ptr<const std::string> shared = nullptr;

    [[nodiscard]] std::span<const std::byte> bytes() const;
  };

  ByteWriter& own();

  std::list<Part> parts_;      // An empty list uses no memory, unlike an empty deque.
  std::size_t n_dropped_ = 0;  // Dropped bytes of the first part.
  std::size_t n_bytes_ = 0;
};

/// Returns the size of a string on the wire: length and text.
[[nodiscard]] std::size_t n_text_bytes(std::string_view text);

/// The outgoing side of a session: replies, limited by the bytes that the client has not read, and
/// for clients that asked for explanations the reasons of refusals and of the end of the
/// connection.
///
/// Owned by a Session. Not thread-safe. Does not throw for a misbehaving client: problem() returns
/// the reason to close the connection.
class Answers {
 public:
  explicit Answers(std::size_t max_unread_bytes) : max_unread_bytes_(max_unread_bytes) {}

  /// From now on, a ReplyKind precedes each reply.
  void start_explaining() { explains_ = true; }

  /// Must be called before a reply of `n_bytes` bytes. The caller writes the whole reply if the
  /// result is true, and no byte otherwise.
  [[nodiscard]] bool begin(std::size_t n_bytes);

  /// Replies with a number, in T's size on the wire.
  template <class T>
  void reply_number(T number) {
    if (begin(sizeof(number))) {
      replies_.put(number);
    }
  }

  void reply_text(const std::string& text);
  void reply_keys(const std::vector<std::string>& keys);
  void tell(const KeyChange& change);

  /// Refuses the current request with `reason`. Closes the connection if the client did not ask for
  /// explanations.
  void refuse(const std::string& reason);

  /// Ends the connection with `problem`: no further reply is written.
  void end(const std::string& problem);

  /// Returns the reason for which the connection must be closed, or "".
  [[nodiscard]] const std::string& problem() const { return problem_; }

  [[nodiscard]] Replies& replies() { return replies_; }

  [[nodiscard]] const Replies& replies() const { return replies_; }

 private:
  void explain(ReplyKind kind, const std::string& reason);

  std::size_t max_unread_bytes_;
  bool explains_ = false;
  Replies replies_;
  std::string problem_;
};

}  // namespace unisono::store
