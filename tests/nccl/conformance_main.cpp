// The conformance tests of collective operations on engine nccl. Host memory of the tests acts as
// GPU memory.
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"

#include "on_gpu.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using engine::Engine;
using engine::MessageCall;
using engine::Operation;

// The number of GPUs is the number of ranks of the largest world. The ranks simulate several nodes,
// but the GPUs are on one node.
constexpr int kGpus = 8;

// Presents all buffers to the nccl engine as memory of the rank's GPU.
class HostAsGpu final : public Engine {
 public:
  HostAsGpu(int gpu, std::shared_ptr<Engine> nccl)
      : device_{.type = DeviceType::kCuda, .index = gpu}, nccl_(std::move(nccl)) {}

  void execute(const Operation& operation, TimeLimit limit, engine::Caller caller) override {
    nccl_->execute(moved(operation), limit, caller);
  }

  void check(const Operation& operation) const override { nccl_->check(moved(operation)); }

  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override {
    Buffer buffer = nccl_->allocate(count, dtype);
    buffer.device = {};
    return buffer;
  }

  int pass_message(const MessageCall& call) override { return nccl_->pass_message(call); }

  void begin_messages(std::span<const MessageCall> calls) override { nccl_->begin_messages(calls); }

  void abort(const Error& reason) noexcept override { nccl_->abort(reason); }

  void leave() noexcept override { nccl_->leave(); }

 private:
  [[nodiscard]] Operation moved(Operation operation) const {
    const transport::OperationKind kind = operation.descriptor.kind;
    if (kind == transport::OperationKind::kBarrier ||
        kind == transport::OperationKind::kMonitoredBarrier) {
      return operation;
    }
    operation.in.device = device_;
    operation.out.device = device_;
    for (std::vector<Buffer>* const buffers : {&operation.ins, &operation.outs}) {
      for (Buffer& buffer : *buffers) {
        buffer.device = device_;
      }
    }
    return operation;
  }

  Device device_;
  std::shared_ptr<Engine> nccl_;
};

void register_host_as_gpu() {
  const engine::Backend nccl = engine::prepared(engine::look_up_backend("nccl"), {});
  engine::Capabilities has = *nccl.gpu_capabilities;
  has.devices = {DeviceType::kCpu};
  // Other tests of this folder cover features that NCCL supports only for some types.
  has.reductions = has.reductions.without({ReduceKind::kBand, ReduceKind::kBor});
  has.reduced_dtypes = has.reduced_dtypes.without({DType::kComplex64, DType::kComplex128});
  engine::register_backend(
      "nccl on the host",
      "for tests",
      [make = nccl.make](const transport::RankTable& roster,
                         std::shared_ptr<engine::SupervisingEngine> native) {
        return std::make_unique<HostAsGpu>(roster.self().job_rank, make(roster, std::move(native)));
      },
      has);
  test::default_backend() = "nccl on the host";
}

}  // namespace
}  // namespace unisono

int main(int argc, char** argv) {
  unisono::test::load_fakes(unisono::kGpus);
  unisono::register_host_as_gpu();
  // These tests apply only to host memory, which is symmetric, has settings, and is retained for
  // coalesced calls.
  ::testing::GTEST_FLAG(filter) =
      "-Group.MemoryIsKnownToBeSymmetric:Group.MemoryThatDoesNotFitIsRefusedWithTheSetting"
      ":Coalesced.SmallCallsGiveBackWhatALargeOneNeeded";
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
