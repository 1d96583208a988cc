#include "unisono/store/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "unisono/store/protocol.h"
#include "unisono/store/refusals.h"

namespace unisono::store {
namespace {

// Layout of each request: k key, v value, n i64, m u32; after a *, a u64 count and the rest that
// many times.
constexpr std::array kLayouts{
    "m",    // validate
    "kv",   // set
    "kvv",  // compare_set
    "k",    // get
    "kn",   // add
    "*k",   // check
    "*k",   // wait
    "",     // num_keys
    "k",    // delete_key
    "kv",   // append
    "*k",   // multi_get
    "*kv",  // multi_set
    "",     // cancel_wait
    "m",    // ping
    "kv",   // queue_push
    "k",    // queue_pop
    "k",    // queue_len
    "",     // list_keys
    "kn",   // barrier
};

const char* layout_of(std::uint8_t opcode) {
  if (opcode < kLayouts.size()) {
    return kLayouts[opcode];
  }
  switch (static_cast<Opcode>(opcode)) {
    case Opcode::kVersion:
    case Opcode::kExplain:
      return "";
    case Opcode::kWatch:
    case Opcode::kUnwatch:
      return "k";
    case Opcode::kSetAtEnd:
      return "kv";
    default:
      return nullptr;
  }
}

}  // namespace

std::size_t RequestParser::feed(std::span<const std::byte> bytes) {
  std::size_t n_taken = 0;
  while (problem_.empty() && step_ != Step::kDone) {
    if (step_ == Step::kField) {
      next_field();
      continue;
    }
    if (step_ == Step::kText && n_text_left_ == 0) {
      step_ = Step::kField;
      continue;
    }
    if (n_taken == bytes.size()) {
      break;
    }
    const std::span<const std::byte> rest = bytes.subspan(n_taken);
    if (step_ == Step::kOpcode) {
      begin(rest.front());
      n_taken += 1;
    } else if (step_ == Step::kText) {
      n_taken += feed_text(rest);
    } else {
      n_taken += feed_scalar(rest);
    }
  }
  return n_taken;
}

std::optional<Request> RequestParser::take() {
  if (step_ != Step::kDone) {
    return std::nullopt;
  }
  step_ = Step::kOpcode;
  return std::exchange(request_, {});
}

std::size_t RequestParser::feed_scalar(std::span<const std::byte> bytes) {
  const std::size_t n = std::min(n_scalar_wanted_ - n_scalar_, bytes.size());
  std::memcpy(scalar_.data() + n_scalar_, bytes.data(), n);
  n_scalar_ += n;
  if (n_scalar_ == n_scalar_wanted_) {
    std::uint64_t value = 0;
    std::memcpy(&value, scalar_.data(), n_scalar_wanted_);
    take_scalar(value);
  }
  return n;
}

std::size_t RequestParser::feed_text(std::span<const std::byte> bytes) {
  const std::size_t n = std::min(n_text_left_, bytes.size());
  std::string& text = is_key_ ? request_.keys.back() : request_.values.back();
  text.append(reinterpret_cast<const char*>(bytes.data()), n);
  n_text_left_ -= n;
  return n;
}

void RequestParser::begin(std::byte opcode) {
  const auto number = std::to_integer<std::uint8_t>(opcode);
  const char* const layout = layout_of(number);
  if (layout == nullptr) {
    problem_ = fmt::format("request {} does not exist", number);
    return;
  }
  request_.opcode = static_cast<Opcode>(number);
  fields_ = layout;
  n_loops_ = 0;
  step_ = Step::kField;
}

void RequestParser::next_field() {
  if (*fields_ == '\0' && n_loops_ > 0) {
    --n_loops_;
    fields_ = loop_;
  }
  switch (*fields_) {
    case '\0':
      step_ = Step::kDone;
      return;
    case '*':
      expect_scalar(Step::kCount, sizeof(std::uint64_t));
      break;
    case 'n':
      expect_scalar(Step::kNumber, sizeof(std::int64_t));
      break;
    case 'm':
      expect_scalar(Step::kNumber, sizeof(std::uint32_t));
      break;
    default:
      is_key_ = *fields_ == 'k';
      expect_scalar(Step::kLength, sizeof(std::uint64_t));
      break;
  }
  ++fields_;
}

void RequestParser::take_scalar(std::uint64_t value) {
  switch (step_) {
    case Step::kCount:
      take_count(value);
      break;
    case Step::kLength:
      take_length(value);
      break;
    default:
      request_.number = static_cast<std::int64_t>(value);
      step_ = Step::kField;
      break;
  }
}

void RequestParser::take_count(std::uint64_t count) {
  if (count > limits_.max_count) {
    problem_ = fmt::format("{}: a request with {} keys; {} are allowed",
                           name_of(request_.opcode),
                           count,
                           limits_.max_count);
    return;
  }
  loop_ = std::exchange(fields_, "");
  n_loops_ = count;
  step_ = Step::kField;
}

void RequestParser::take_length(std::uint64_t length) {
  const std::size_t limit = is_key_ ? limits_.max_key_bytes : limits_.max_value_bytes;
  if (length > limit) {
    problem_ = fmt::format("{}: a {} of {} bytes{}; {} are allowed",
                           name_of(request_.opcode),
                           is_key_ ? "key" : "value",
                           length,
                           is_key_ ? "" : " for " + shown_key(request_.keys.back()),
                           limit);
    return;
  }
  request_.n_bytes += length + kStringOverhead;
  if (request_.n_bytes > limits_.max_request_bytes) {
    problem_ = fmt::format("{}: a request of more than {} bytes; use several",
                           name_of(request_.opcode),
                           limits_.max_request_bytes);
    return;
  }
  (is_key_ ? request_.keys : request_.values).emplace_back();
  n_text_left_ = length;
  step_ = Step::kText;
}

void RequestParser::expect_scalar(Step step, std::size_t n_bytes) {
  step_ = step;
  n_scalar_ = 0;
  n_scalar_wanted_ = n_bytes;
}

}  // namespace unisono::store
