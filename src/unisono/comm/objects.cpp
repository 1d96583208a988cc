#include "unisono/comm/objects.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/comm/group.h"
#include "unisono/comm/object_calls.h"
#include "unisono/comm/process_group.h"

namespace unisono {
namespace {

// const_cast: a buffer is for inputs and outputs, and this one is never written.
Buffer view_of(std::string_view bytes) {
  return {.data = const_cast<char*>(bytes.data()),
          .count = static_cast<std::int64_t>(bytes.size()),
          .dtype = DType::kUInt8};
}

std::vector<Buffer> views_of(const std::vector<std::string>& objects) {
  std::vector<Buffer> views;
  for (const std::string& object : objects) {
    views.push_back(view_of(object));
  }
  return views;
}

Buffer held(std::string bytes) {
  const auto memory = std::make_shared<std::string>(std::move(bytes));
  Buffer view = view_of(*memory);
  view.owner = memory;
  return view;
}

template <class Result>
Result run(ProcessGroup& group, comm::ObjectCalls<Result> calls) {
  comm::group_of(group).run(std::move(calls.sizes), std::move(calls.bytes));
  return std::move(*calls.result);
}

template <class Result>
ObjectWork<Result> submit(ProcessGroup& group, comm::ObjectCalls<Result> calls) {
  return {comm::group_of(group).submit(std::move(calls.sizes), std::move(calls.bytes)),
          std::move(calls.result)};
}

comm::Membership& membership_of(ProcessGroup& group) {
  return comm::group_of(group).membership();
}

}  // namespace

std::vector<std::string> all_gather_object(ProcessGroup& group,
                                           std::string_view object,
                                           const ObjectOptions& options) {
  return run(group, comm::all_gather_object_calls(membership_of(group), view_of(object), options));
}

ObjectWork<std::vector<std::string>> all_gather_object_async(ProcessGroup& group,
                                                             std::string object,
                                                             const ObjectOptions& options) {
  return submit(
      group, comm::all_gather_object_calls(membership_of(group), held(std::move(object)), options));
}

std::vector<std::string> gather_object(ProcessGroup& group,
                                       std::string_view object,
                                       int root,
                                       const ObjectOptions& options) {
  return run(group,
             comm::gather_object_calls(membership_of(group), view_of(object), root, options));
}

ObjectWork<std::vector<std::string>> gather_object_async(ProcessGroup& group,
                                                         std::string object,
                                                         int root,
                                                         const ObjectOptions& options) {
  return submit(
      group,
      comm::gather_object_calls(membership_of(group), held(std::move(object)), root, options));
}

std::string broadcast_object(ProcessGroup& group,
                             std::string_view object,
                             int root,
                             const ObjectOptions& options) {
  return run(group,
             comm::broadcast_object_calls(membership_of(group), view_of(object), root, options));
}

ObjectWork<std::string> broadcast_object_async(ProcessGroup& group,
                                               std::string object,
                                               int root,
                                               const ObjectOptions& options) {
  return submit(
      group,
      comm::broadcast_object_calls(membership_of(group), held(std::move(object)), root, options));
}

std::string scatter_object(ProcessGroup& group,
                           const std::vector<std::string>& objects,
                           int root,
                           const ObjectOptions& options) {
  return run(group,
             comm::scatter_object_calls(membership_of(group), views_of(objects), root, options));
}

ObjectWork<std::string> scatter_object_async(ProcessGroup& group,
                                             std::vector<std::string> objects,
                                             int root,
                                             const ObjectOptions& options) {
  std::vector<Buffer> buffers;
  for (std::string& object : objects) {
    buffers.push_back(held(std::move(object)));
  }
  return submit(group, comm::scatter_object_calls(membership_of(group), buffers, root, options));
}

}  // namespace unisono
