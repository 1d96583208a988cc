#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "unisono/comm/work.h"

#include "future_runner.h"
#include "staging.h"

namespace unisono::python {

/// Description of an operation for PyTorch.
struct OperationInfo {
  c10d::OpType type;
  const char* title;                    ///< Name in profiles: "unisono:all_reduce".
  std::vector<at::Tensor> inputs = {};  ///< Profiles show the shapes of these tensors.
  /// The lists of outputs; several lists if a rank has several tensors with a list for each.
  /// result() returns all tensors, and the future holds future_value() of the lists.
  std::vector<std::vector<at::Tensor>> outputs = {};
  // Shared by a backend and its works.
  std::shared_ptr<FutureRunner> futures;
  std::shared_ptr<std::atomic<int>> n_under_way;  ///< Number of operations in flight.
};

/// Returns the value of the future of an operation with these lists of outputs, as in PyTorch: the
/// only list, or the list of lists.
[[nodiscard]] at::IValue future_value(const std::vector<std::vector<at::Tensor>>& outputs);

/// An operation in flight, in the form of a c10d::Work. The operation is complete when its results
/// are in the tensors.
///
/// Shared by the caller and the callbacks of the core's operations. Thread-safe. The operation's
/// error is translated to PyTorch's exceptions and thrown by wait().
class Work final : public c10d::Work {
 public:
  Work(int rank, OperationInfo info);

  /// The operation consists of one or several operations of the core. If an operation fails, the
  /// others continue.
  void follow(std::vector<unisono::Work> works, Staging staging);

  /// The operation consists of all these works.
  void follow(std::vector<c10::intrusive_ptr<Work>> works);

  /// Completes the operation, with null for success.
  void end(std::exception_ptr error);

  /// Throws RuntimeError if the timeout expires; the operation continues then. 0 means no limit. On
  /// the main thread, Ctrl-C ends the wait with KeyboardInterrupt.
  bool wait(std::chrono::milliseconds timeout) override;

  bool isCompleted() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override;

 private:
  using Callback = std::function<void(std::exception_ptr)>;

  c10::intrusive_ptr<Work> shared();
  void on_end(Callback callback);
  void note_end(std::exception_ptr error);
  // Makes this thread's later work on devices wait for the results. Called after the operation has
  // ended without an error.
  void follow_results() const;
  void complete_future(const c10::intrusive_ptr<c10::ivalue::Future>& future);

  OperationInfo info_;
  Staging staging_;
  std::vector<unisono::Work> works_;
  std::vector<c10::intrusive_ptr<Work>> parts_;  // Set by the second form of follow().
  // Guarded by the base class's mutex_.
  std::size_t n_under_way_ = 0;
  std::exception_ptr first_error_;
  std::vector<Callback> callbacks_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool has_future_ended_ = false;
};

}  // namespace unisono::python
