#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "unisono/base/buffer.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "arguments.h"
#include "bucket_gradients.h"
#include "connect.h"
#include "future_runner.h"
#include "options.h"
#include "staging.h"
#include "work.h"

namespace unisono::python {

/// A process group in the form of a torch.distributed backend.
///
/// Owned by torch; holds the core's group, shared with the groups split from it. Thread-safe, like
/// ProcessGroup. A blocking call (option asyncOp is false) runs on the caller's thread and returns
/// a completed Work. Members throw PyTorch's exceptions.
class Backend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkHandle = c10::intrusive_ptr<c10d::Work>;

  /// Meets the other ranks of the group. Throws PyTorch's exceptions, like all members.
  Backend(const GroupPlan& plan, c10::intrusive_ptr<python::Options> options);
  ~Backend() override;

  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  Backend(Backend&&) = delete;
  Backend& operator=(Backend&&) = delete;

  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// Gradients of models that allreduce() leaves in their buckets.
  [[nodiscard]] BucketGradients& bucket_gradients() { return *bucket_gradients_; }

  /// Calls function(core's group, timeout), for operations that c10d lacks. Errors are translated
  /// to PyTorch's exceptions. Needs backend_run.h. The GIL must not be held.
  template <class Function>
  void run_on_core(Function&& function);

  const std::string getBackendName() const override { return "unisono"; }

  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }

  /// Returns false, so that torch's batch_isend_irecv() starts the messages in sequence, with the
  /// same result. With coalescing, a refused message leaves the group unusable: torch then records
  /// the following calls without running any.
  bool supportsCoalescing() const override { return false; }

  /// Collects the operations that this thread starts, until endCoalescing() on the same thread
  /// returns a single Work for all.
  void startCoalescing() override;
  WorkHandle endCoalescing() override;

  bool supportsSplitting() const override { return true; }

  /// Returns the group of `ranks`, in that order. Returns null on other ranks, which need not call
  /// the function.
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

  /// Returns a group that is a job of its own, of ranks that meet in the store.
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options,
                                          const int& rank,
                                          const int& size) override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void shutdown() override;
  void abort() override;

  /// Leaves the groups at the end of the process. Operations in flight may complete within
  /// comm::kExitPatience. If the program has failed, operations in flight are aborted immediately,
  /// on this rank and on waiting ranks; an operation that a thread starts in the meantime has
  /// comm::kFailedExitPatience. The GIL must not be held.
  static void leave_all(const std::vector<c10::intrusive_ptr<Backend>>& backends, bool has_failed);

  std::uint64_t getSequenceNumberForGroup() override;

  // The sequence number counts from the group's first operation.
  void setSequenceNumberForGroup() override {}

  void enableCollectivesTiming() override {}  // Operations are not timed one by one.

  WorkHandle broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkHandle allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkHandle allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkHandle allreduce_coalesced(Tensors& tensors,
                                 const c10d::AllreduceCoalescedOptions& options) override;
  WorkHandle reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkHandle allgather(std::vector<Tensors>& outputs,
                       Tensors& inputs,
                       const c10d::AllgatherOptions& options) override;
  WorkHandle _allgather_base(at::Tensor& output,
                             at::Tensor& input,
                             const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_coalesced(std::vector<Tensors>& outputs,
                                 Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs,
                                             Tensors& inputs,
                                             const c10d::AllgatherOptions& options) override;
  WorkHandle gather(std::vector<Tensors>& outputs,
                    Tensors& inputs,
                    const c10d::GatherOptions& options) override;
  WorkHandle scatter(Tensors& outputs,
                     std::vector<Tensors>& inputs,
                     const c10d::ScatterOptions& options) override;
  WorkHandle reduce_scatter(Tensors& outputs,
                            std::vector<Tensors>& inputs,
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
  WorkHandle barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
  using Works = std::vector<c10::intrusive_ptr<Work>>;

  // Aborts the group, on this rank and on waiting ranks, if an operation is in flight.
  void abort_operations();

  // Operations that one thread has started since startCoalescing().
  struct Coalesced {
    std::thread::id thread;
    Works works;
  };

  // Runs the operation in the core's blocking or asynchronous form; both have the same effect.
  template <class Blocking, class Async>
  WorkHandle run(const Arguments& arguments,
                 bool is_async,
                 OperationInfo info,
                 Staging staging,
                 Blocking&& blocking,
                 Async&& async);
  // Runs several operations of the core, returned by `begin`, at the same time.
  template <class Begin>
  WorkHandle run_all(const Arguments& arguments,
                     bool is_async,
                     OperationInfo info,
                     Staging staging,
                     Begin&& begin);
  WorkHandle follow(c10::intrusive_ptr<Work> work,
                    std::vector<unisono::Work> parts,
                    Staging staging);
  OperationInfo describe(c10d::OpType type,
                         const char* title,
                         Tensors inputs,
                         std::vector<Tensors> outputs);
  WorkHandle receive(Tensors& tensors, int from, int tag, c10d::OpType type, const char* title);
  WorkHandle all_reduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options);
  WorkHandle all_gather_several(std::vector<Tensors>& outputs,
                                Tensors& inputs,
                                const c10d::AllgatherOptions& options);
  std::vector<unisono::Work> all_gathers(const std::vector<Buffer>& ins,
                                         const std::vector<std::vector<Buffer>>& outs,
                                         const AllGatherOptions& options);
  [[nodiscard]] std::chrono::milliseconds timeout(std::chrono::milliseconds asked) const;
  void note_coalesced(const c10::intrusive_ptr<Work>& work) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] AllReduceOptions all_reduce_options(const c10d::AllreduceOptions& options,
                                                    const Arguments& arguments) const;
  // Returns true in a child of fork(), which has no threads to join and must not use the parent's
  // group.
  [[nodiscard]] bool is_in_child() const;

  const pid_t pid_;
  std::shared_ptr<ProcessGroup> group_;  // Shared with groups that are split from the group.
  c10::intrusive_ptr<python::Options> options_;
  std::shared_ptr<FutureRunner> futures_;  // Shared with works in flight.
  std::shared_ptr<std::atomic<int>> n_under_way_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> n_operations_ = 0;
  const std::shared_ptr<BucketGradients> bucket_gradients_ = std::make_shared<BucketGradients>();
  Mutex mutex_;
  std::vector<Coalesced> coalesced_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::python
