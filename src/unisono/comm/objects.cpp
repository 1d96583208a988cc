#include "unisono/comm/objects.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/transport/descriptor.h"

namespace unisono {
namespace {

using transport::OperationKind;

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

// An operation on objects: the sizes, then the bytes, which come to lie in `result`. Both calls
// hold what they need.
template <class Result>
struct ObjectCalls {
  comm::Call sizes;
  comm::NextCall bytes;
  std::shared_ptr<Result> result;
};

using ObjectList = std::vector<std::string>;

constexpr const char* kSizesLabel = "the sizes of objects";
constexpr const char* kObjectsLabel = "objects";

void make_room(std::string& object, std::int64_t size) {
  if (size < 0) {
    throw Error(
        ErrorCode::kInternal,
        fmt::format("a rank sent {} as the size of its object: it called something else", size));
  }
  try {
    object.resize(static_cast<std::size_t>(size));
  } catch (const std::exception& error) {
    throw Error(
        ErrorCode::kInternal,
        fmt::format("no memory for the object of {} bytes that comes ({})", size, error.what()));
  }
}

// A place for each object.
std::vector<Buffer> make_room(ObjectList& objects, std::span<const std::int64_t> sizes) {
  objects.resize(sizes.size());
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    make_room(objects[i], sizes[i]);
    buffers.push_back(view_of(objects[i]));
  }
  return buffers;
}

// Both calls hold it.
struct State {
  std::int64_t size = 0;            // Of this rank's object.
  std::vector<std::int64_t> sizes;  // Of all objects, where this rank has them.
  std::string object;
  ObjectList objects;
};

ObjectCalls<ObjectList> all_gather_object_calls(comm::Membership& membership,
                                                const Buffer& object,
                                                const ObjectOptions& options) {
  const auto n_ranks = static_cast<std::size_t>(membership.topology().world_size());
  const auto state = std::make_shared<State>(object.count, std::vector<std::int64_t>(n_ranks));
  return {.sizes = comm::all_gather_call(membership,
                                         as_buffer(std::span(&state->size, 1)),
                                         as_buffer(std::span(state->sizes)),
                                         {.timeout = options.timeout, .label = kSizesLabel}),
          .bytes =
              [&membership, object, options, state] {
                return comm::all_gather_call(membership,
                                             object,
                                             make_room(state->objects, state->sizes),
                                             {.timeout = options.timeout, .label = kObjectsLabel});
              },
          .result = {state, &state->objects}};
}

ObjectCalls<ObjectList> gather_object_calls(comm::Membership& membership,
                                            const Buffer& object,
                                            int root,
                                            const ObjectOptions& options) {
  const bool is_root = membership.topology().rank() == root;
  const auto n_sizes = static_cast<std::size_t>(is_root ? membership.topology().world_size() : 0);
  const auto state = std::make_shared<State>(object.count, std::vector<std::int64_t>(n_sizes));
  return {
      .sizes = comm::rooted_call(membership,
                                 OperationKind::kGather,
                                 as_buffer(std::span(&state->size, 1)),
                                 is_root ? as_buffer(std::span(state->sizes)) : Buffer(),
                                 {.root = root, .timeout = options.timeout, .label = kSizesLabel}),
      .bytes =
          [&membership, object, root, options, state] {
            return comm::rooted_call(
                membership,
                OperationKind::kGather,
                object,
                make_room(state->objects, state->sizes),
                {.root = root, .timeout = options.timeout, .label = kObjectsLabel});
          },
      .result = {state, &state->objects}};
}

ObjectCalls<std::string> broadcast_object_calls(comm::Membership& membership,
                                                const Buffer& object,
                                                int root,
                                                const ObjectOptions& options) {
  const bool is_root = membership.topology().rank() == root;
  const auto state = std::make_shared<State>(object.count);
  return {.sizes = comm::broadcast_call(
              membership,
              as_buffer(std::span(&state->size, 1)),
              {.root = root, .timeout = options.timeout, .label = "the size of an object"}),
          .bytes =
              [&membership, object, root, is_root, options, state] {
                make_room(state->object, state->size);
                if (is_root && state->size > 0) {
                  std::memcpy(state->object.data(), object.data, state->object.size());
                }
                return comm::broadcast_call(
                    membership,
                    view_of(state->object),
                    {.root = root, .timeout = options.timeout, .label = "an object"});
              },
          .result = {state, &state->object}};
}

ObjectCalls<std::string> scatter_object_calls(comm::Membership& membership,
                                              const std::vector<Buffer>& objects,
                                              int root,
                                              const ObjectOptions& options) {
  const bool is_root = membership.topology().rank() == root;
  const int n_ranks = membership.topology().world_size();
  if (is_root && objects.size() != static_cast<std::size_t>(n_ranks)) {
    throw membership.refuse(
        "scatter_object",
        fmt::format("there are {} objects, where a world of {} needs one per rank",
                    objects.size(),
                    n_ranks));
  }
  const auto state = std::make_shared<State>();
  for (const Buffer& object : objects) {
    state->sizes.push_back(object.count);
  }
  return {
      .sizes = comm::rooted_call(membership,
                                 OperationKind::kScatter,
                                 as_buffer(std::span(&state->size, 1)),
                                 is_root ? as_buffer(std::span(state->sizes)) : Buffer(),
                                 {.root = root, .timeout = options.timeout, .label = kSizesLabel}),
      .bytes =
          [&membership, objects, root, is_root, options, state] {
            make_room(state->object, state->size);
            return comm::rooted_call(
                membership,
                OperationKind::kScatter,
                view_of(state->object),
                is_root ? objects : std::vector<Buffer>(),
                {.root = root, .timeout = options.timeout, .label = kObjectsLabel});
          },
      .result = {state, &state->object}};
}

template <class Result>
Result run(ProcessGroup& group, ObjectCalls<Result> calls) {
  comm::group_of(group).run(std::move(calls.sizes), std::move(calls.bytes));
  return std::move(*calls.result);
}

template <class Result>
ObjectWork<Result> submit(ProcessGroup& group, ObjectCalls<Result> calls) {
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
  return run(group, all_gather_object_calls(membership_of(group), view_of(object), options));
}

ObjectWork<std::vector<std::string>> all_gather_object_async(ProcessGroup& group,
                                                             std::string object,
                                                             const ObjectOptions& options) {
  return submit(group,
                all_gather_object_calls(membership_of(group), held(std::move(object)), options));
}

std::vector<std::string> gather_object(ProcessGroup& group,
                                       std::string_view object,
                                       int root,
                                       const ObjectOptions& options) {
  return run(group, gather_object_calls(membership_of(group), view_of(object), root, options));
}

ObjectWork<std::vector<std::string>> gather_object_async(ProcessGroup& group,
                                                         std::string object,
                                                         int root,
                                                         const ObjectOptions& options) {
  return submit(group,
                gather_object_calls(membership_of(group), held(std::move(object)), root, options));
}

std::string broadcast_object(ProcessGroup& group,
                             std::string_view object,
                             int root,
                             const ObjectOptions& options) {
  return run(group, broadcast_object_calls(membership_of(group), view_of(object), root, options));
}

ObjectWork<std::string> broadcast_object_async(ProcessGroup& group,
                                               std::string object,
                                               int root,
                                               const ObjectOptions& options) {
  return submit(
      group, broadcast_object_calls(membership_of(group), held(std::move(object)), root, options));
}

std::string scatter_object(ProcessGroup& group,
                           const std::vector<std::string>& objects,
                           int root,
                           const ObjectOptions& options) {
  return run(group, scatter_object_calls(membership_of(group), views_of(objects), root, options));
}

ObjectWork<std::string> scatter_object_async(ProcessGroup& group,
                                             std::vector<std::string> objects,
                                             int root,
                                             const ObjectOptions& options) {
  std::vector<Buffer> buffers;
  for (std::string& object : objects) {
    buffers.push_back(held(std::move(object)));
  }
  return submit(group, scatter_object_calls(membership_of(group), buffers, root, options));
}

}  // namespace unisono
