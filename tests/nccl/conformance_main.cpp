// The conformance tests of collective operations on engine nccl: what they have on the host passes
// for memory of GPUs.
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/capabilities.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/operation.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/descriptor.h"

#include "on_gpu.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using engine::Engine;
using engine::MessageCall;
using engine::Operation;

// As many as the largest world has ranks: they pretend to be of several nodes, but the GPUs are of
// one.
constexpr int kGpus = 8;

// Tells the engine of nccl that all buffers are on the rank's GPU.
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
  const engine::Backend nccl = engine::look_up_backend("nccl");
  engine::Capabilities has = *nccl.gpu_capabilities;
  has.devices = {DeviceType::kCpu};
  // What it has for some types alone is a matter of tests of this folder.
  has.reductions = has.reductions.without({ReduceKind::kBand, ReduceKind::kBor});
  has.reduced_dtypes = has.reduced_dtypes.without({DType::kComplex64, DType::kComplex128});
  engine::register_backend(
      "nccl on the host",
      "for tests",
      [make = nccl.make](const rendezvous::Roster& roster,
                         std::shared_ptr<engine::SupervisingEngine> native) {
        return std::make_unique<HostAsGpu>(roster.self().rank, make(roster, std::move(native)));
      },
      has);
  test::default_backend() = "nccl on the host";
}

}  // namespace
}  // namespace unisono

int main(int argc, char** argv) {
  unisono::test::load_fakes(unisono::kGpus);
  unisono::register_host_as_gpu();
  // Of the host's memory alone: it is symmetric, has settings, and is kept for coalesced calls.
  ::testing::GTEST_FLAG(filter) =
      "-Group.MemoryIsKnownToBeSymmetric:Group.MemoryThatDoesNotFitIsRefusedWithTheSetting"
      ":Coalesced.SmallCallsGiveBackWhatALargeOneNeeded";
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
