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

std::function<void()> untouched_check(Buffer& buffer, std::string who) {
  const std::span<std::byte> bytes = bytes_in(buffer);
  std::ranges::fill(bytes, kPoison);
  auto landing = std::make_shared<std::vector<std::byte>>(bytes.size());
  auto pages =
      std::make_shared<GuardedPages>(bytes, fmt::format("{}: before wait() the buffer", who));
  Buffer elsewhere = buffer;
  elsewhere.data = landing->data();
  elsewhere.owner = landing;
  return [target = std::exchange(buffer, elsewhere),
          who = std::move(who),
          landing = std::move(landing),
          pages = std::move(pages)]() mutable {
    GuardedPages::Touch touch = pages->first_touch();
    pages.reset();
    const std::span<std::byte> own = bytes_in(target);
    const bool is_changed =
        std::ranges::any_of(own, [](std::byte value) { return value != kPoison; });
    if (touch == GuardedPages::Touch::kNone && is_changed) {
      touch = GuardedPages::Touch::kWrite;
    }
    if (!own.empty()) {
      std::memcpy(own.data(), landing->data(), own.size());
    }
    if (touch != GuardedPages::Touch::kNone) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the buffer was {} before wait()", who, to_string(touch)));
    }
  };
}

}  // namespace unisono::engine
