#include "unisono/engine/native/point_to_point/buffer_check.h"

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"

namespace unisono::engine {
namespace {

std::size_t hash_of(const Buffer& buffer) {
  return std::hash<std::string_view>()(
      {static_cast<const char*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())});
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

}  // namespace unisono::engine
