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

/// What an operation is to PyTorch.
struct OperationInfo {
  c10d::OpType type;
  const char* title;                    ///< As profiles name it: "unisono:all_reduce".
  std::vector<at::Tensor> inputs = {};  ///< Whose shapes profiles show.
  /// Several where a rank has several tensors with a list for each. All are result(), and their
  /// future_value() is the future's.
  std::vector<std::vector<at::Tensor>> outputs = {};
  // Shared by a backend and its works.
  std::shared_ptr<FutureRunner> futures;
  std::shared_ptr<std::atomic<int>> n_under_way;  ///< Operations.
};

/// What the future of an operation with these lists of outputs holds in PyTorch: the only list, or
/// the list of lists.
[[nodiscard]] at::IValue future_value(const std::vector<std::vector<at::Tensor>>& outputs);

/// An operation in flight, as PyTorch sees it. It has ended when its results are in the tensors.
class Work final : public c10d::Work {
 public:
  Work(int rank, OperationInfo info);

  /// The operation is one of the core's, or several, which all go on when one fails.
  void follow(std::vector<unisono::Work> works, Staging staging);

  /// The operation is all of these together.
  void follow(std::vector<c10::intrusive_ptr<Work>> works);

  /// Something else ended the operation; null after success.
  void end(std::exception_ptr error);

  /// Throws RuntimeError when the time is up, which leaves the operation going on; 0 is for ever.
  /// On the main thread, Ctrl-C ends it with KeyboardInterrupt.
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
  void complete_future(const c10::intrusive_ptr<c10::ivalue::Future>& future);

  OperationInfo info_;
  Staging staging_;
  std::vector<unisono::Work> works_;
  // Guarded by the base class's mutex_.
  std::size_t n_under_way_ = 0;
  std::exception_ptr first_error_;
  std::vector<Callback> callbacks_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool has_future_ended_ = false;
};

}  // namespace unisono::python
