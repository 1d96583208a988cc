#include "unisono/comm/objects.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/operation_queue.h"
#include "unisono/transport/descriptor.h"

namespace unisono {
namespace {

using transport::OperationKind;

// const_cast: a Buffer serves for inputs and outputs; this buffer is never written.
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

// An operation on objects: the sizes, then the bytes, which arrive in `result`. Both calls own the
// data that they need.
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
        fmt::format("a rank sent {} as the size of its object: it called another operation", size));
  }
  try {
    object.resize(static_cast<std::size_t>(size));
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInternal,
                fmt::format("no memory to receive an object of {} bytes ({})", size, error.what()));
  }
}

// Resizes the objects, and returns a buffer for each.
std::vector<Buffer> make_room(ObjectList& objects, std::span<const std::int64_t> sizes) {
  objects.resize(sizes.size());
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    make_room(objects[i], sizes[i]);
    buffers.push_back(view_of(objects[i]));
  }
  return buffers;
}

// Owned by both calls.
struct State {
  std::int64_t size = 0;            // Size of this rank's object.
  std::vector<std::int64_t> sizes;  // Sizes of all objects; empty if unknown on this rank.
  std::string object;
  ObjectList objects;
};

ObjectCalls<ObjectList> all_gather_object_calls(comm::GroupState& group_state,
                                                const Buffer& object,
                                                const ObjectOptions& options) {
  const auto n_ranks = static_cast<std::size_t>(group_state.topology().world_size());
  const auto state = std::make_shared<State>(object.count, std::vector<std::int64_t>(n_ranks));
  return {.sizes = comm::all_gather_call(group_state,
                                         as_buffer(std::span(&state->size, 1)),
                                         as_buffer(std::span(state->sizes)),
                                         {.timeout = options.timeout, .label = kSizesLabel}),
          .bytes =
              [&group_state, object, options, state] {
                return comm::all_gather_call(group_state,
                                             object,
                                             make_room(state->objects, state->sizes),
                                             {.timeout = options.timeout, .label = kObjectsLabel});
              },
          .result = {state, &state->objects}};
}

ObjectCalls<ObjectList> gather_object_calls(comm::GroupState& group_state,
                                            const Buffer& object,
                                            int root,
                                            const ObjectOptions& options) {
  const bool is_root = group_state.topology().rank() == root;
  const auto n_sizes = static_cast<std::size_t>(is_root ? group_state.topology().world_size() : 0);
  const auto state = std::make_shared<State>(object.count, std::vector<std::int64_t>(n_sizes));
  return {
      .sizes = comm::rooted_call(group_state,
                                 OperationKind::kGather,
                                 as_buffer(std::span(&state->size, 1)),
                                 is_root ? as_buffer(std::span(state->sizes)) : Buffer(),
                                 {.root = root, .timeout = options.timeout, .label = kSizesLabel}),
      .bytes =
          [&group_state, object, root, options, state] {
            return comm::rooted_call(
                group_state,
                OperationKind::kGather,
                object,
                make_room(state->objects, state->sizes),
                {.root = root, .timeout = options.timeout, .label = kObjectsLabel});
          },
      .result = {state, &state->objects}};
}

ObjectCalls<std::string> broadcast_object_calls(comm::GroupState& group_state,
                                                const Buffer& object,
                                                int root,
                                                const ObjectOptions& options) {
  const bool is_root = group_state.topology().rank() == root;
  const auto state = std::make_shared<State>(object.count);
  return {.sizes = comm::broadcast_call(
              group_state,
              as_buffer(std::span(&state->size, 1)),
              {.root = root, .timeout = options.timeout, .label = "the size of an object"}),
          .bytes =
              [&group_state, object, root, is_root, options, state] {
                make_room(state->object, state->size);
                if (is_root && state->size > 0) {
                  std::memcpy(state->object.data(), object.data, state->object.size());
                }
                return comm::broadcast_call(
                    group_state,
                    view_of(state->object),
                    {.root = root, .timeout = options.timeout, .label = "an object"});
              },
          .result = {state, &state->object}};
}

ObjectCalls<std::string> scatter_object_calls(comm::GroupState& group_state,
                                              const std::vector<Buffer>& objects,
                                              int root,
                                              const ObjectOptions& options) {
  const bool is_root = group_state.topology().rank() == root;
  const int n_ranks = group_state.topology().world_size();
  if (is_root && objects.size() != static_cast<std::size_t>(n_ranks)) {
    throw group_state.refuse(
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
      .sizes = comm::rooted_call(group_state,
                                 OperationKind::kScatter,
                                 as_buffer(std::span(&state->size, 1)),
                                 is_root ? as_buffer(std::span(state->sizes)) : Buffer(),
                                 {.root = root, .timeout = options.timeout, .label = kSizesLabel}),
      .bytes =
          [&group_state, objects, root, is_root, options, state] {
            make_room(state->object, state->size);
            return comm::rooted_call(
                group_state,
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

comm::GroupState& group_state_of(ProcessGroup& group) {
  return comm::group_of(group).state();
}

}  // namespace

std::vector<std::string> all_gather_object(ProcessGroup& group,
                                           std::string_view object,
                                           const ObjectOptions& options) {
  return run(group, all_gather_object_calls(group_state_of(group), view_of(object), options));
}

ObjectWork<std::vector<std::string>> all_gather_object_async(ProcessGroup& group,
                                                             std::string object,
                                                             const ObjectOptions& options) {
  return submit(group,
                all_gather_object_calls(group_state_of(group), held(std::move(object)), options));
}

std::vector<std::string> gather_object(ProcessGroup& group,
                                       std::string_view object,
                                       int root,
                                       const ObjectOptions& options) {
  return run(group, gather_object_calls(group_state_of(group), view_of(object), root, options));
}

ObjectWork<std::vector<std::string>> gather_object_async(ProcessGroup& group,
                                                         std::string object,
                                                         int root,
                                                         const ObjectOptions& options) {
  return submit(group,
                gather_object_calls(group_state_of(group), held(std::move(object)), root, options));
}

std::string broadcast_object(ProcessGroup& group,
                             std::string_view object,
                             int root,
                             const ObjectOptions& options) {
  return run(group, broadcast_object_calls(group_state_of(group), view_of(object), root, options));
}

ObjectWork<std::string> broadcast_object_async(ProcessGroup& group,
                                               std::string object,
                                               int root,
                                               const ObjectOptions& options) {
  return submit(
      group, broadcast_object_calls(group_state_of(group), held(std::move(object)), root, options));
}

std::string scatter_object(ProcessGroup& group,
                           const std::vector<std::string>& objects,
                           int root,
                           const ObjectOptions& options) {
  return run(group, scatter_object_calls(group_state_of(group), views_of(objects), root, options));
}

ObjectWork<std::string> scatter_object_async(ProcessGroup& group,
                                             std::vector<std::string> objects,
                                             int root,
                                             const ObjectOptions& options) {
  std::vector<Buffer> buffers;
  for (std::string& object : objects) {
    buffers.push_back(held(std::move(object)));
  }
  return submit(group, scatter_object_calls(group_state_of(group), buffers, root, options));
}

}  // namespace unisono
