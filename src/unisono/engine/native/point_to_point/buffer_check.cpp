#include "unisono/engine/native/point_to_point/buffer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/guarded_pages.h"

namespace unisono::engine {
namespace {

std::size_t hash_of(const Buffer& buffer) {
  return std::hash<std::string_view>()(
      {static_cast<const char*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())});
}

constexpr std::byte kPoison{0xFF};

std::span<std::byte> bytes_in(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())};
}

}  // namespace

std::function<void()> unchanged_check(const Buffer& buffer, std::string who) {
  return [buffer, hash = hash_of(buffer), who = std::move(who)] {
    if (hash_of(buffer) != hash) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the buffer was written to before wait()", who));
    }
  };
}

GuardedReceive::GuardedReceive(const Buffer& buffer, std::string who)
    : buffer_(buffer),
      who_(std::move(who)),
      memory_(std::make_shared<std::vector<std::byte>>(bytes_in(buffer).size())) {
  std::ranges::fill(bytes_in(buffer_), kPoison);
  pages_.emplace(bytes_in(buffer_), fmt::format("{}: before wait() the buffer", who_));
}

Buffer GuardedReceive::landing() const {
  Buffer landing = buffer_;
  landing.data = memory_->data();
  landing.owner = memory_;
  return landing;
}

void GuardedReceive::deliver() {
  GuardedPages::Touch touch = pages_ ? pages_->first_touch() : GuardedPages::Touch::kNone;
  pages_.reset();
  const std::span<std::byte> bytes = bytes_in(buffer_);
  const bool is_changed =
      std::ranges::any_of(bytes, [](std::byte value) { return value != kPoison; });
  if (touch == GuardedPages::Touch::kNone && is_changed) {
    touch = GuardedPages::Touch::kWrite;
  }
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), memory_->data(), bytes.size());
  }
  if (touch != GuardedPages::Touch::kNone) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: the buffer was {} before wait()", who_, to_string(touch)));
  }
}

}  // namespace unisono::engine
