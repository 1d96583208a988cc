#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace unisono::python {

/// PyTorch's Gloo for tensors of any strides. Gloo takes strided tensors for contiguous ones, or
/// refuses them: so it gets PlainTensors here, whose results are copied back when an operation
/// ends. All else is Gloo's own. Thread-safe, as Gloo is.
class GlooBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using WorkHandle = c10::intrusive_ptr<c10d::Work>;

  explicit GlooBackend(c10::intrusive_ptr<c10d::Backend> gloo)
      : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {
    init();
  }

  [[nodiscard]] const c10::intrusive_ptr<c10d::Backend>& gloo() const { return gloo_; }

  const std::string getBackendName() const override { return gloo_->getBackendName(); }

  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return gloo_->getBackendOptions();
  }

  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }

  void shutdown() override { gloo_->shutdown(); }

  void abort() override { gloo_->abort(); }

  std::uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }

  void enableCollectivesTiming() override { gloo_->enableCollectivesTiming(); }

  WorkHandle broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkHandle allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkHandle allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkHandle allreduce_coalesced(Tensors& tensors,
                                 const c10d::AllreduceCoalescedOptions& options) override;
  WorkHandle reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkHandle allgather(TensorLists& outputs,
                       Tensors& inputs,
                       const c10d::AllgatherOptions& options) override;
  WorkHandle _allgather_base(at::Tensor& output,
                             at::Tensor& input,
                             const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_coalesced(TensorLists& outputs,
                                 Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs,
                                             Tensors& inputs,
                                             const c10d::AllgatherOptions& options) override;
  WorkHandle gather(TensorLists& outputs,
                    Tensors& inputs,
                    const c10d::GatherOptions& options) override;
  WorkHandle scatter(Tensors& outputs,
                     TensorLists& inputs,
                     const c10d::ScatterOptions& options) override;
  WorkHandle reduce_scatter(Tensors& outputs,
                            TensorLists& inputs,
                            const c10d::ReduceScatterOptions& options) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output,
                                  at::Tensor& input,
                                  const c10d::ReduceScatterOptions& options) override;
  WorkHandle reduce_scatter_tensor_coalesced(Tensors& outputs,
                                             Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options) override;
  WorkHandle alltoall_base(at::Tensor& output,
                           at::Tensor& input,
                           std::vector<std::int64_t>& output_splits,
                           std::vector<std::int64_t>& input_splits,
                           const c10d::AllToAllOptions& options) override;
  WorkHandle alltoall(Tensors& outputs,
                      Tensors& inputs,
                      const c10d::AllToAllOptions& options) override;
  WorkHandle send(Tensors& tensors, int to, int tag) override;
  WorkHandle recv(Tensors& tensors, int from, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;

  WorkHandle barrier(const c10d::BarrierOptions& options) override {
    return gloo_->barrier(options);
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    gloo_->monitoredBarrier(options, wait_all_ranks);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> gloo_;
};

}  // namespace unisono::python
