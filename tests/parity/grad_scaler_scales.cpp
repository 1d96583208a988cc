// grad_scaler_scales OVERFLOWS: prints the scale, the growth tracker and the parameter after each
// step. A 1 in OVERFLOWS makes the gradient of that step infinite.

#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/torch/amp/amp.h"

int main(int argc, char** argv) {
  try {
    const std::string overflows = argc > 1 ? argv[1] : "";
    const torch::Tensor parameter = torch::ones({1}, torch::requires_grad());
    torch::optim::SGD optimizer(std::vector<torch::Tensor>{parameter}, 0.1);
    unisono::GradScaler scaler(
        {.init_scale = 1e36, .growth_factor = 3, .backoff_factor = 0.3, .growth_interval = 3});
    for (const char overflow : overflows) {
      optimizer.zero_grad();
      const double factor = overflow == '1' ? std::numeric_limits<double>::infinity() : 0.25;
      scaler.scale((parameter * factor).sum()).backward();
      scaler.step(optimizer);
      scaler.update();
      std::printf("%.9g %lld %.9g\n",
                  scaler.get_scale(),
                  static_cast<long long>(scaler.growth_tracker()),
                  parameter.item<double>());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
