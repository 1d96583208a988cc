#include "unisono/engine/nccl/nccl_backend.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/gpus.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/nccl/nccl_engine.h"
#include "unisono/engine/nccl/nccl_library.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::engine::nccl {
namespace {

std::string find_obstacle() {
  const Gpus gpus = find_gpus(process_environment());
  if (gpus.visible.empty()) {
    return fmt::format("it needs a GPU, and {}; on CPUs use backend unisono", gpus.explanation);
  }
  try {
    (void)nccl_library();
  } catch (const Error& error) {
    return fmt::format(
        "NVIDIA's NCCL can't be loaded: {}; install it (pip install "
        "nvidia-nccl-cu13, apt-get install libnccl2) and name its folder in "
        "LD_LIBRARY_PATH, or copy tensors to the CPU and use backend unisono",
        error.what());
  }
  return "";
}

std::unique_ptr<Engine> make(const rendezvous::Roster& roster, std::unique_ptr<Engine> native) {
  return std::make_unique<NcclEngine>(nccl_library(), roster, std::move(native));
}

}  // namespace

Backend describe_backend() {
  return {.name = "nccl",
          .help = "NVIDIA's NCCL for buffers on GPUs, unisono for those on CPUs",
          .has_cuda = true,
          .make = make,
          .find_obstacle = find_obstacle};
}

}  // namespace unisono::engine::nccl
