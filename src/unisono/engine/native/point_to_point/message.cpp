#include "unisono/engine/native/point_to_point/message.h"

#include <fmt/format.h>

#include <string>

#include "unisono/base/dtype.h"
#include "unisono/transport/describe.h"

namespace unisono::engine {

std::string describe(const Message& message, transport::JobRanks job_ranks) {
  const std::string peer =
      message.peer == kAnyRank
          ? "any rank"
          : fmt::format("rank {}", transport::describe_rank(message.peer, job_ranks));
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
