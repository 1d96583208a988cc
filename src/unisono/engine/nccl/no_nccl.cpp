// In place of all else in this folder, where the build has found no nccl.h.
#include "unisono/engine/backends.h"
#include "unisono/engine/nccl/nccl_backend.h"

namespace unisono::engine::nccl {

Backend describe_backend() {
  return {.name = "nccl",
          .help =
              "this build has no NCCL; build unisono where there are the headers of NCCL and CUDA "
              "(-DUNISONO_NCCL_DIR=FOLDER), or copy tensors to the CPU and use unisono",
          .is_there = false};
}

}  // namespace unisono::engine::nccl
