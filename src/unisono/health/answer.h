#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/transport/frame.h"

namespace unisono::health {

/// How a question to another rank ended.
struct Answer {
  std::optional<transport::Frame> frame = {};  ///< What it said.
  std::vector<std::byte> payload = {};
  /// Without a frame: why none comes; kPeerLost: the rank has left, or is gone. Without either none
  /// came in time.
  std::optional<Error> problem = {};
};

}  // namespace unisono::health
