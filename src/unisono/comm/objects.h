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

/// Handle of an operation in flight that returns objects. The operation continues without the
/// handle.
template <class Result>
class ObjectWork {
 public:
  /// `result` is filled before `work` completes.
  ObjectWork(Work work, std::shared_ptr<Result> result)
      : work_(std::move(work)), result_(std::move(result)) {}

  ~ObjectWork() = default;

  ObjectWork(const ObjectWork&) = delete;
  ObjectWork& operator=(const ObjectWork&) = delete;
  ObjectWork(ObjectWork&&) noexcept = default;
  ObjectWork& operator=(ObjectWork&&) noexcept = default;

  /// Returns the handle for waits with a limit, and for callbacks.
  [[nodiscard]] const Work& work() const { return work_; }

  /// Waits until the operation has ended, and returns its result. Call once.
  ///
  /// Throws the operation's error, and Error(kInvalidArgument) if the result was taken before.
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

// Operations on byte strings of any length, for example for configuration and results. Every rank
// of the group must call the same operation. Each consists of two operations of the group with no
// other between: the sizes, then the bytes. `timeout` applies to each of the two. The functions
// throw the errors of these operations; a rank without memory for incoming bytes closes the group
// with kInternal.

/// Returns every rank's bytes, by rank.
[[nodiscard]] std::vector<std::string> all_gather_object(ProcessGroup& group,
                                                         std::string_view object,
                                                         const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::vector<std::string>> all_gather_object_async(
    ProcessGroup& group, std::string object, const ObjectOptions& options = {});

/// Returns every rank's bytes, by rank, on the root; an empty list on other ranks.
[[nodiscard]] std::vector<std::string> gather_object(ProcessGroup& group,
                                                     std::string_view object,
                                                     int root = 0,
                                                     const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::vector<std::string>> gather_object_async(
    ProcessGroup& group, std::string object, int root = 0, const ObjectOptions& options = {});

/// Returns the root's bytes.
[[nodiscard]] std::string broadcast_object(ProcessGroup& group,
                                           std::string_view object,
                                           int root = 0,
                                           const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::string> broadcast_object_async(ProcessGroup& group,
                                                             std::string object,
                                                             int root = 0,
                                                             const ObjectOptions& options = {});

/// Returns the root's object for this rank. The other ranks pass an empty list.
///
/// Throws Error(kInvalidArgument) on the root unless there is an object for each rank.
[[nodiscard]] std::string scatter_object(ProcessGroup& group,
                                         const std::vector<std::string>& objects,
                                         int root = 0,
                                         const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::string> scatter_object_async(ProcessGroup& group,
                                                           std::vector<std::string> objects,
                                                           int root = 0,
                                                           const ObjectOptions& options = {});

}  // namespace unisono
