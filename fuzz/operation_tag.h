#pragma once

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/tcp/connection.h"

namespace unisono::fuzz {

/// The operation that the connection under test is in, and that its seeds are for.
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
