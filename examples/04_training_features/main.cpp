// Mixed precision, accumulation, clipping, a schedule, and ranks with different numbers of batches:
// unisono run -n 2 training_features
#include <cstdio>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/utils.h>
#include <unisono/torch.h>

int main() {
  const auto group = unisono::init_process_group();
  torch::manual_seed(group->rank());

  unisono::DistributedDataParallel model(
      torch::nn::Sequential(torch::nn::Linear(16, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1)),
      group);
  unisono::optim::AdamW optimizer(model.parameters(), unisono::optim::AdamWOptions(1e-2));
  unisono::optim::LrScheduler scheduler(optimizer, unisono::optim::cosine_annealing_lr(60));

  const int n_steps = 40 + 10 * group->rank();  // The ranks have unequal amounts of data.
  double last_loss = 0;
  model.join([&] {
    for (int step = 0; step < n_steps; ++step) {
      const torch::Tensor x = torch::randn({64, 16});
      const torch::Tensor y = x.sum(1, /*keepdim=*/true);
      optimizer.zero_grad();
      const auto backward = [&](int half) {
        torch::Tensor loss;
        {
          const unisono::Autocast autocast;  // bfloat16
          loss = torch::mse_loss(model(x.chunk(2)[half]).to(torch::kFloat), y.chunk(2)[half]) / 2;
        }
        loss.backward();
        last_loss = loss.item<double>() * 2;
      };
      {
        const auto guard = model.no_sync();  // Adds up local gradients only.
        backward(0);
      }
      backward(1);
      torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
      optimizer.step();
      scheduler.step();
    }
  });
  model.check_consistent();
  std::printf("rank %d: %d steps, the last one's loss %.2f, and the same parameters as all\n",
              group->rank(),
              n_steps,
              last_loss);
  unisono::destroy_process_group();
}
