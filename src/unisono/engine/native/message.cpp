#include "unisono/engine/native/message.h"

#include <fmt/format.h>

#include <string>

#include "unisono/base/dtype.h"

namespace unisono::engine {

std::string describe(const Message& message) {
  const std::string peer =
      message.peer == kAnyRank ? "any rank" : fmt::format("rank {}", message.peer);
  return fmt::format("{} ({}[{}], {} {}, tag {}){}{}",
                     message.is_send ? "send" : "recv",
                     to_string(message.buffer.dtype),
                     message.buffer.count,
                     message.is_send ? "to" : "from",
                     peer,
                     message.tag,
                     message.label.empty() ? "" : " of ",
                     message.label);
}

}  // namespace unisono::engine
