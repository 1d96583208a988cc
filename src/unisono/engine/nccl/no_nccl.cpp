// Replaces the engine and its parts in a build without nccl.h.
#include "unisono/base/error.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/nccl/nccl_backend.h"

namespace unisono::engine::nccl {

MakeEngine engine_maker() {
  throw Error(ErrorCode::kInvalidArgument,
              "this build has no NCCL; build unisono where there are the headers of NCCL and CUDA "
              "(-DUNISONO_NCCL_DIR=FOLDER)");
}

}  // namespace unisono::engine::nccl
