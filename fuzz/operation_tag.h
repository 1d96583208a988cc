#pragma once

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/remote/connection.h"

namespace unisono::fuzz {

/// Returns the active operation of the connection under test, for which the seeds are made.
inline tcp::OperationTag operation_tag() {
  return {.sequence = 7,
          .descriptor = {.kind = transport::OperationKind::kAllReduce,
                         .dtype = DType::kFloat32,
                         .reduce = ReduceKind::kSum,
                         .algorithm = Algorithm::kAuto,
                         .root = -1,
                         .count = 3}};
}

}  // namespace unisono::fuzz
