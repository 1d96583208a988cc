#include "unisono/engine/nccl/nccl_backend.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/gpus.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/capabilities.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/nccl/nccl_engine.h"
#include "unisono/engine/nccl/nccl_library.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::engine::nccl {
namespace {

// Some reductions are only for some types: NcclEngine::check() knows which.
Capabilities gpu_capabilities() {
  Capabilities result{.devices = {DeviceType::kCuda}};
  result.reduced_dtypes = result.reduced_dtypes.without({DType::kInt16, DType::kUInt16});
  result.reductions =
      result.reductions.without({ReduceKind::kBxor, ReduceKind::kPremulSum, ReduceKind::kUser});
  result.takes_algorithm = false;
  result.has_canonical_bits = false;
  result.instead = "copy the buffers to the CPU, where this group has";
  return result;
}

// What this machine lacks, and what to do; empty if nothing.
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

std::shared_ptr<Engine> make(const rendezvous::Roster& roster,
                             std::shared_ptr<SupervisingEngine> native) {
  return std::make_shared<NcclEngine>(nccl_library(), roster, std::move(native));
}

}  // namespace

Backend describe_backend() {
  if (const std::string obstacle = find_obstacle(); !obstacle.empty()) {
    return {.name = "nccl", .help = obstacle, .is_there = false};
  }
  return {.name = "nccl",
          .help = "NVIDIA's NCCL for buffers on GPUs, unisono for those on CPUs",
          .capabilities = {.devices = {DeviceType::kCpu, DeviceType::kCuda}},
          .gpu_capabilities = gpu_capabilities(),
          .make = make};
}

}  // namespace unisono::engine::nccl
