#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/store/limits.h"
#include "unisono/store/protocol.h"

namespace unisono::store {

/// A request, as its opcode's row in the protocol has it: only the members that it uses are filled.
struct Request {
  Opcode opcode = Opcode::kPing;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::int64_t number = 0;  ///< Delta, world size, magic or nonce.
  std::size_t n_bytes = 0;  ///< Of its keys and values.
};

/// Finds requests in a stream of bytes that may be cut anywhere. Each byte is looked at once, and
/// memory grows with what has come, never with what a length claims.
class RequestParser {
 public:
  explicit RequestParser(const Limits& limits) : limits_(limits) {}

  /// Takes bytes up to the end of a request, and returns how many.
  [[nodiscard]] std::size_t feed(std::span<const std::byte> bytes);

  /// The request that the last feed() completed.
  [[nodiscard]] std::optional<Request> take();

  /// Why the stream can't be parsed any further; empty while it can.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  enum class Step { kOpcode, kField, kCount, kNumber, kLength, kText, kDone };

  std::size_t feed_scalar(std::span<const std::byte> bytes);
  std::size_t feed_text(std::span<const std::byte> bytes);
  void begin(std::byte opcode);
  void next_field();
  void take_scalar(std::uint64_t value);
  void take_count(std::uint64_t count);
  void take_length(std::uint64_t length);
  void expect_scalar(Step step, std::size_t n_bytes);

  Limits limits_;
  std::string problem_;
  Step step_ = Step::kOpcode;
  const char* fields_ = "";  // What of the request's layout is still to come.
  const char* loop_ = "";    // The fields to repeat n_loops_ times more.
  std::uint64_t n_loops_ = 0;
  Request request_;
  std::array<std::byte, 8> scalar_{};
  std::size_t n_scalar_ = 0;         // Bytes of scalar_ that are there.
  std::size_t n_scalar_wanted_ = 0;  // Bytes that it will have.
  std::size_t n_text_left_ = 0;
  bool is_key_ = false;
};

}  // namespace unisono::store
