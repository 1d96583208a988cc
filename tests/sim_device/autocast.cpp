#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "sim_device/torch_device.h"

namespace sim {

using namespace at;            // NOLINT(google-build-using-namespace): the macros need it
using namespace at::autocast;  // NOLINT(google-build-using-namespace): the macros need it

// The lists of LibTorch: which operators run in the lower precision, which in float32.
void add_autocast(torch::Library& all, torch::Library& aten) {
  all.fallback(torch::CppFunction::makeFallthrough());
  torch::Library& m = aten;  // The macros' name for the library.
#define SIM_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SIM_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define SIM_FLOAT32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define SIM_WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(SIM_LOWER_PRECISION)
  AT_FORALL_FP32(SIM_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(SIM_FLOAT32_RESULT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(SIM_WIDEST)
}

}  // namespace sim
