#include "unisono/store/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "unisono/store/refusals.h"

namespace unisono::store {
namespace {

// Layout of each request: k key, v value, n i64, m u32. A * stands for a u64 count; the following
// fields are repeated that many times.
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
  while (problem_.empty() && step_ != MapStep::kDone) {
    if (step_ == MapStep::kField) {
      next_field();
      continue;
    }
    if (step_ == MapStep::kText && n_text_left_ == 0) {
      step_ = MapStep::kField;
      continue;
    }
    if (n_taken == bytes.size()) {
      break;
    }
    const std::span<const std::byte> rest = bytes.subspan(n_taken);
    if (step_ == MapStep::kOpcode) {
      begin(rest.front());
      n_taken += 1;
    } else if (step_ == MapStep::kText) {
      n_taken += feed_text(rest);
    } else {
      n_taken += feed_scalar(rest);
    }
  }
  return n_taken;
}

std::optional<Request> RequestParser::take() {
  if (step_ != MapStep::kDone) {
    return std::nullopt;
  }
  step_ = MapStep::kOpcode;
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
  step_ = MapStep::kField;
}

void RequestParser::next_field() {
  if (*fields_ == '\0' && n_loops_ > 0) {
    --n_loops_;
    fields_ = loop_;
  }
  switch (*fields_) {
    case '\0':
      step_ = MapStep::kDone;
      return;
    case '*':
      expect_scalar(MapStep::kCount, sizeof(std::uint64_t));
      break;
    case 'n':
      expect_scalar(MapStep::kNumber, sizeof(std::int64_t));
      break;
    case 'm':
      expect_scalar(MapStep::kNumber, sizeof(std::uint32_t));
      break;
    default:
      is_key_ = *fields_ == 'k';
      expect_scalar(MapStep::kLength, sizeof(std::uint64_t));
      break;
  }
  ++fields_;
}

void RequestParser::take_scalar(std::uint64_t value) {
  switch (step_) {
    case MapStep::kCount:
      take_count(value);
      break;
    case MapStep::kLength:
      take_length(value);
      break;
    default:
      request_.number = static_cast<std::int64_t>(value);
      step_ = MapStep::kField;
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
  step_ = MapStep::kField;
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
  step_ = MapStep::kText;
}

void RequestParser::expect_scalar(MapStep step, std::size_t n_bytes) {
  step_ = step;
  n_scalar_ = 0;
  n_scalar_wanted_ = n_bytes;
}

namespace {

// Copying fewer bytes costs no more than a separate part.
constexpr std::size_t kMinSharedBytes = 4096;

constexpr std::size_t kFullPartBytes = std::size_t{64} << 10;

}  // namespace

std::span<const std::byte> Replies::Part::bytes() const {
  return shared == nullptr ? std::span(own.bytes()) : std::as_bytes(std::span(*shared));
}

void Replies::put_raw(std::span<const std::byte> raw) {
  own().put_raw(raw);
  n_bytes_ += raw.size();
}

void Replies::put_string(std::string_view text) {
  own().put_string(text);
  n_bytes_ += sizeof(std::uint64_t) + text.size();
}

void Replies::put_string(const std::shared_ptr<const std::string>& text) {
  if (text->size() < kMinSharedBytes) {
    put_string(*text);
    return;
  }
  put(std::uint64_t{text->size()});
  parts_.push_back({.shared = text});
  n_bytes_ += text->size();
}

std::span<const std::byte> Replies::first() const {
  return parts_.empty() ? std::span<const std::byte>() : parts_.front().bytes().subspan(n_dropped_);
}

std::span<const std::byte> Replies::second() const {
  return parts_.size() < 2 ? std::span<const std::byte>() : std::next(parts_.begin())->bytes();
}

void Replies::drop(std::size_t n_bytes) {
  n_bytes_ -= n_bytes;
  n_dropped_ += n_bytes;
  while (!parts_.empty() && n_dropped_ >= parts_.front().bytes().size()) {
    n_dropped_ -= parts_.front().bytes().size();
    parts_.pop_front();
  }
}

// Parts are small, because sent bytes are freed part by part.
ByteWriter& Replies::own() {
  if (parts_.empty() || parts_.back().shared != nullptr ||
      parts_.back().own.bytes().size() >= kFullPartBytes) {
    parts_.emplace_back();
  }
  return parts_.back().own;
}

namespace {

// Wire format of an optional value: a u8 flag, followed by the string if the flag is 1.
std::size_t n_value_bytes(const std::optional<std::string>& value) {
  return 1 + (value ? n_text_bytes(*value) : 0);
}

void put_value(Replies& replies, const std::optional<std::string>& value) {
  replies.put(static_cast<std::uint8_t>(value.has_value()));
  if (value) {
    replies.put_string(*value);
  }
}

}  // namespace

std::size_t n_text_bytes(std::string_view text) {
  return sizeof(std::uint64_t) + text.size();
}

// Returns false for every reply after a reply that found no room: the client would take the later
// reply for the missing reply.
bool Answers::begin(std::size_t n_bytes) {
  if (!problem_.empty()) {
    return false;
  }
  n_bytes += explains_ ? 1 : 0;
  if (n_bytes > max_unread_bytes_ && explains_) {
    refuse(fmt::format("an answer of {} bytes; {} are allowed, so ask for less at a time",
                       n_bytes,
                       max_unread_bytes_));
    return false;
  }
  if (replies_.n_bytes() + n_bytes > max_unread_bytes_) {
    end(fmt::format("it leaves more than {} bytes unread", max_unread_bytes_));
    return false;
  }
  if (explains_) {
    replies_.put(static_cast<std::uint8_t>(ReplyKind::kAnswer));
  }
  return true;
}

void Answers::reply_text(const std::string& text) {
  if (begin(n_text_bytes(text))) {
    replies_.put_string(text);
  }
}

void Answers::reply_keys(const std::vector<std::string>& keys) {
  std::size_t n_bytes = sizeof(std::int64_t);
  for (const std::string& key : keys) {
    n_bytes += n_text_bytes(key);
  }
  if (!begin(n_bytes)) {
    return;
  }
  replies_.put(static_cast<std::int64_t>(keys.size()));
  for (const std::string& key : keys) {
    replies_.put_string(key);
  }
}

void Answers::tell(const KeyChange& change) {
  if (begin(1 + n_text_bytes(change.key) + n_value_bytes(change.before) +
            n_value_bytes(change.after))) {
    replies_.put(static_cast<std::uint8_t>(WatchNotice::kChanged));
    replies_.put_string(change.key);
    put_value(replies_, change.before);
    put_value(replies_, change.after);
  }
}

void Answers::refuse(const std::string& reason) {
  if (explains_ && problem_.empty()) {
    explain(ReplyKind::kRefusal, reason);
  } else {
    end(reason);
  }
}

void Answers::end(const std::string& problem) {
  if (problem_.empty()) {
    problem_ = problem;
    if (explains_) {
      explain(ReplyKind::kEnd, problem);
    }
  }
}

// Sends no explanation to a client that does not read replies.
void Answers::explain(ReplyKind kind, const std::string& reason) {
  if (replies_.n_bytes() + 1 + n_text_bytes(reason) <= max_unread_bytes_) {
    replies_.put(static_cast<std::uint8_t>(kind));
    replies_.put_string(reason);
  } else if (problem_.empty()) {
    problem_ = fmt::format("it leaves more than {} bytes unread", max_unread_bytes_);
  }
}

}  // namespace unisono::store
