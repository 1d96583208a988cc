#include "unisono/store/answers.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/store/protocol.h"
#include "unisono/store/replies.h"
#include "unisono/store/watch.h"

namespace unisono::store {
namespace {

// A u8 that says whether there is a value, and its bytes if so.
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

// Never again after a reply that found no room: the client would take what follows for that one.
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
    replies_.put(static_cast<std::uint8_t>(Notice::kChanged));
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

// Who reads nothing is told nothing.
void Answers::explain(ReplyKind kind, const std::string& reason) {
  if (replies_.n_bytes() + 1 + n_text_bytes(reason) <= max_unread_bytes_) {
    replies_.put(static_cast<std::uint8_t>(kind));
    replies_.put_string(reason);
  } else if (problem_.empty()) {
    problem_ = fmt::format("it leaves more than {} bytes unread", max_unread_bytes_);
  }
}

}  // namespace unisono::store
