#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/config.h"

namespace unisono {

/// A GPU that CUDA shows to this process.
struct Gpu {
  int index = 0;              ///< CUDA's index: 0 for cuda:0.
  std::string name;           ///< The driver's name of the GPU, such as "NVIDIA H100 80GB HBM3".
  std::string uuid;           ///< "GPU-8c4d...", as nvidia-smi prints it.
  std::uint64_t n_bytes = 0;  ///< Size of the GPU's memory.
};

/// Result of find_gpus().
struct Gpus {
  std::vector<Gpu> visible;
  /// The reason if there is no GPU, or fewer GPUs than CUDA_VISIBLE_DEVICES names; otherwise empty.
  std::string explanation;
};

/// Returns the GPUs that a CUDA program finds on this machine: the GPUs of NVIDIA's driver except
/// those that CUDA_VISIBLE_DEVICES hides. `environment` must be the environment of this process,
/// because the driver reads the variable itself.
///
/// Loads libcuda.so.1 and initializes CUDA (cuInit), which takes some tenths of a second on a
/// machine with GPUs. Creates no context. A missing GPU, a missing driver and an invalid value of
/// the variable are not errors: `explanation` describes them.
[[nodiscard]] Gpus find_gpus(const Environment& environment);

}  // namespace unisono
