#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/config.h"

namespace unisono {

/// A GPU that CUDA shows to this process.
struct Gpu {
  int index = 0;              ///< CUDA's: this is cuda:0, ...
  std::string name;           ///< As the driver has it: "NVIDIA H100 80GB HBM3".
  std::string uuid;           ///< "GPU-8c4d...", as nvidia-smi prints it.
  std::uint64_t n_bytes = 0;  ///< Its memory.
};

struct Gpus {
  std::vector<Gpu> visible;
  /// Why there are none, or fewer than CUDA_VISIBLE_DEVICES names; empty where all is well.
  std::string explanation;
};

/// The GPUs that a program which uses CUDA finds here: those of NVIDIA's driver, less what
/// CUDA_VISIBLE_DEVICES hides. `environment` is that of this process: the driver reads the variable
/// itself.
///
/// Loads libcuda.so.1 and initializes CUDA (cuInit), which takes some tenths of a second where
/// there are GPUs; makes no context on them. No GPU, no driver and a bad value of the variable are
/// no errors.
[[nodiscard]] Gpus find_gpus(const Environment& environment);

}  // namespace unisono
