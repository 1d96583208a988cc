#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
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

// Operations on byte strings of any length, as programs use them for configuration and results.
// Every rank of the group calls the same one. Each is two operations of the group with nothing
// between them: the sizes, then the bytes. `timeout` is for each of the two. They throw what these
// throw; a rank that has no memory for what it is sent closes the group with kInternal.

/// Every rank's bytes, by rank.
[[nodiscard]] std::vector<std::string> all_gather_object(ProcessGroup& group,
                                                         std::string_view object,
                                                         const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::vector<std::string>> all_gather_object_async(
    ProcessGroup& group, std::string object, const ObjectOptions& options = {});

/// Every rank's bytes, by rank, on the root; nothing on the others.
[[nodiscard]] std::vector<std::string> gather_object(ProcessGroup& group,
                                                     std::string_view object,
                                                     int root = 0,
                                                     const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::vector<std::string>> gather_object_async(
    ProcessGroup& group, std::string object, int root = 0, const ObjectOptions& options = {});

/// The root's bytes.
[[nodiscard]] std::string broadcast_object(ProcessGroup& group,
                                           std::string_view object,
                                           int root = 0,
                                           const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::string> broadcast_object_async(ProcessGroup& group,
                                                             std::string object,
                                                             int root = 0,
                                                             const ObjectOptions& options = {});

/// What the root has for this rank. The other ranks pass an empty list.
///
/// Throws Error(kInvalidArgument) on the root unless there is one for each rank.
[[nodiscard]] std::string scatter_object(ProcessGroup& group,
                                         const std::vector<std::string>& objects,
                                         int root = 0,
                                         const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::string> scatter_object_async(ProcessGroup& group,
                                                           std::vector<std::string> objects,
                                                           int root = 0,
                                                           const ObjectOptions& options = {});

}  // namespace unisono
