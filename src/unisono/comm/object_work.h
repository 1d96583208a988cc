#pragma once

#include <memory>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/comm/work.h"

namespace unisono {

/// Handle of an operation in flight that brings objects. It goes on when the handle is gone.
template <class Result>
class ObjectWork {
 public:
  ObjectWork(Work work, std::shared_ptr<Result> result)
      : work_(std::move(work)), result_(std::move(result)) {}

  ~ObjectWork() = default;

  ObjectWork(const ObjectWork&) = delete;
  ObjectWork& operator=(const ObjectWork&) = delete;
  ObjectWork(ObjectWork&&) noexcept = default;
  ObjectWork& operator=(ObjectWork&&) noexcept = default;

  /// To wait with a limit, or be called back.
  [[nodiscard]] const Work& work() const { return work_; }

  /// Waits until the operation has ended and hands over what came. Once.
  ///
  /// Throws the operation's error, and Error(kInvalidArgument) when the result was taken before.
  [[nodiscard]] Result get() {
    work_.wait();
    if (result_ == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the result of this operation on objects was taken already; get() gives it once");
    }
    return std::move(*std::exchange(result_, nullptr));
  }

 private:
  Work work_;
  std::shared_ptr<Result> result_;
};

}  // namespace unisono
