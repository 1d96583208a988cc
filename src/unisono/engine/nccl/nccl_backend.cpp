#include "unisono/engine/nccl/nccl_backend.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/gpus.h"
#include "unisono/base/reduction.h"

namespace unisono::engine::nccl {
namespace {

// Some reductions support only some types; NcclEngine::check() tests each combination.
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

Backend absent(std::string help) {
  return {.name = "nccl", .help = std::move(help), .is_there = false};
}

}  // namespace

Backend describe_backend() {
  const Gpus gpus = find_gpus(process_environment());
  if (gpus.visible.empty()) {
    return absent(fmt::format(
        "it needs a GPU, and {}; on CPUs use backend unisono, which does there what gloo does",
        gpus.explanation));
  }
  try {
    (void)engine_maker({});
    return {.name = "nccl",
            .help = "NVIDIA's NCCL for buffers on GPUs, unisono for those on CPUs",
            .capabilities = {.devices = {DeviceType::kCpu, DeviceType::kCuda}},
            .gpu_capabilities = gpu_capabilities(),
            .prepare = engine_maker};
  } catch (const Error& error) {
    return absent(
        fmt::format("{}, or copy tensors to the CPU and use backend unisono", error.what()));
  }
}

}  // namespace unisono::engine::nccl
