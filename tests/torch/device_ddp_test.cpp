// DistributedDataParallel on the simulated devices, compared with the CPU. Rank r has device
// "sim:r".

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"
#include "sim_device/quiet_end.h"

namespace unisono::testing {
namespace {

constexpr std::int64_t kBatchSize = 8;
constexpr int kSteps = 20;

using DeviceDdp = sim::QuietEnd;

using Prepare = std::function<void(DistributedDataParallel<ConvNet>& model)>;

struct Training {
  DistributedDataParallelOptions options = {};
  Prepare prepare = [](auto& /*model*/) {};
  int n_micro_batches = 1;
};

// Returns the parameters after kSteps steps, in host memory.
std::vector<at::Tensor> train(const std::shared_ptr<ProcessGroup>& group,
                              at::Device device,
                              const Training& training) {
  ConvNet net = make_seeded_net();
  net->to(device);
  DistributedDataParallel model(net, group, training.options);
  training.prepare(model);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < training.n_micro_batches; ++part) {
      const Sample host = make_sample(step * 10 + part, group->rank(), kBatchSize, torch::kFloat);
      const Sample sample{.images = host.images.to(device), .labels = host.labels.to(device)};
      if (part + 1 < training.n_micro_batches) {
        const auto alone = model.no_sync();
        loss_of(model, sample).backward();
      } else {
        loss_of(model, sample).backward();
      }
    }
    optimizer.step();
  }
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : model.parameters()) {
    parameters.push_back(parameter.detach().cpu());
  }
  return parameters;
}

void expect_equal_to_the_cpu(int world_size, const Training& training) {
  run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
    const at::Device device(at::kPrivateUse1, static_cast<c10::DeviceIndex>(group->rank()));
    EXPECT_TRUE(is_bit_equal(train(group, device, training), train(group, at::kCPU, training)))
        << "rank " << group->rank();
  });
}

TEST_F(DeviceDdp, TrainsBitEqualToTheCpu) {
  expect_equal_to_the_cpu(2, {});
}

TEST_F(DeviceDdp, TrainsOnFourRanksWithSmallBuckets) {
  expect_equal_to_the_cpu(4, {.options = {.bucket_cap_mb = 0.001}});
}

TEST_F(DeviceDdp, AccumulatesWithoutSynchronization) {
  expect_equal_to_the_cpu(2, {.n_micro_batches = 3});
}

TEST_F(DeviceDdp, CallsCommunicationHooks) {
  expect_equal_to_the_cpu(
      2, {.prepare = [](auto& model) { model.register_comm_hook(nullptr, fp16_compress_hook); }});
}

}  // namespace
}  // namespace unisono::testing
