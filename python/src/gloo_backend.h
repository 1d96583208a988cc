#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "unisono/base/mutex.h"

namespace unisono::python {

/// PyTorch's Gloo for tensors of any strides. Gloo takes strided tensors for contiguous ones, or
/// refuses them: so it gets PlainTensors here, whose results are copied back when an operation
/// ends. All else is Gloo's own. Thread-safe, as Gloo is. Calls after shutdown() throw
/// DistBackendError.
class GlooBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using WorkHandle = c10::intrusive_ptr<c10d::Work>;

  explicit GlooBackend(c10::intrusive_ptr<c10d::Backend> gloo)
      : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {
    init();
  }

  /// Returns Gloo's own group, or null after shutdown().
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> gloo() const;

  const std::string getBackendName() const override { return running()->getBackendName(); }

  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return running()->getBackendOptions();
  }

  void setTimeout(std::chrono::milliseconds timeout) override { running()->setTimeout(timeout); }

  /// Destroys Gloo's group, which joins its threads. A thread that outlived the interpreter would
  /// abort the process when it releases the last reference to a tensor.
  void shutdown() override;

  void abort() override { running()->abort(); }

  std::uint64_t getSequenceNumberForGroup() override {
    return running()->getSequenceNumberForGroup();
  }

  void setSequenceNumberForGroup() override { running()->setSequenceNumberForGroup(); }

  void enableCollectivesTiming() override { running()->enableCollectivesTiming(); }

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
    return running()->barrier(options);
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    running()->monitoredBarrier(options, wait_all_ranks);
  }

 private:
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> running() const;

  mutable Mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> gloo_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::python
