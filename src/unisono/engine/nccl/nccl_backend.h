#pragma once

#include "unisono/engine/backends.h"

namespace unisono::engine::nccl {

/// The row of the table of backends: in a build without nccl.h one that is not there.
[[nodiscard]] Backend describe_backend();

}  // namespace unisono::engine::nccl
