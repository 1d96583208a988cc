#include "unisono/store/replies.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/bytes.h"

namespace unisono::store {
namespace {

// Copying less costs no more than another part does.
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

// Parts are small, since sent bytes are given back by the part.
ByteWriter& Replies::own() {
  if (parts_.empty() || parts_.back().shared != nullptr ||
      parts_.back().own.bytes().size() >= kFullPartBytes) {
    parts_.emplace_back();
  }
  return parts_.back().own;
}

}  // namespace unisono::store
