#include "unisono/comm/object_calls.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"

namespace unisono::comm {
namespace {

constexpr const char* kSizesLabel = "the sizes of objects";
constexpr const char* kObjectsLabel = "objects";

Buffer room_of(std::string& bytes) {
  return {.data = bytes.data(),
          .count = static_cast<std::int64_t>(bytes.size()),
          .dtype = DType::kUInt8};
}

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
    buffers.push_back(room_of(objects[i]));
  }
  return buffers;
}

struct Gathering {
  std::int64_t own_size;
  std::vector<std::int64_t> sizes;
  ObjectList objects;
};

struct Single {
  std::vector<std::int64_t> sizes;  // On the root of a scatter.
  std::int64_t size;
  std::string object;
};

}  // namespace

ObjectCalls<ObjectList> all_gather_object_calls(Membership& membership,
                                                const Buffer& object,
                                                const ObjectOptions& options) {
  const auto n_ranks = static_cast<std::size_t>(membership.topology().world_size());
  const auto state =
      std::make_shared<Gathering>(object.count, std::vector<std::int64_t>(n_ranks), ObjectList());
  return {.sizes = all_gather_call(membership,
                                   as_buffer(std::span(&state->own_size, 1)),
                                   as_buffer(std::span(state->sizes)),
                                   {.timeout = options.timeout, .label = kSizesLabel}),
          .bytes =
              [&membership, object, options, state] {
                return all_gather_call(membership,
                                       object,
                                       make_room(state->objects, state->sizes),
                                       {.timeout = options.timeout, .label = kObjectsLabel});
              },
          .result = {state, &state->objects}};
}

ObjectCalls<ObjectList> gather_object_calls(Membership& membership,
                                            const Buffer& object,
                                            int root,
                                            const ObjectOptions& options) {
  const bool is_root = membership.topology().rank() == root;
  const auto n_sizes = static_cast<std::size_t>(is_root ? membership.topology().world_size() : 0);
  const auto state =
      std::make_shared<Gathering>(object.count, std::vector<std::int64_t>(n_sizes), ObjectList());
  return {.sizes = gather_call(membership,
                               as_buffer(std::span(&state->own_size, 1)),
                               is_root ? as_buffer(std::span(state->sizes)) : Buffer(),
                               {.root = root, .timeout = options.timeout, .label = kSizesLabel}),
          .bytes =
              [&membership, object, root, options, state] {
                return gather_call(
                    membership,
                    object,
                    make_room(state->objects, state->sizes),
                    {.root = root, .timeout = options.timeout, .label = kObjectsLabel});
              },
          .result = {state, &state->objects}};
}

ObjectCalls<std::string> broadcast_object_calls(Membership& membership,
                                                const Buffer& object,
                                                int root,
                                                const ObjectOptions& options) {
  const bool is_root = membership.topology().rank() == root;
  const auto state = std::make_shared<Single>(std::vector<std::int64_t>(), object.count, "");
  return {.sizes = broadcast_call(
              membership,
              as_buffer(std::span(&state->size, 1)),
              {.root = root, .timeout = options.timeout, .label = "the size of an object"}),
          .bytes =
              [&membership, object, root, is_root, options, state] {
                make_room(state->object, state->size);
                if (is_root && state->size > 0) {
                  std::memcpy(state->object.data(), object.data, state->object.size());
                }
                return broadcast_call(
                    membership,
                    room_of(state->object),
                    {.root = root, .timeout = options.timeout, .label = "an object"});
              },
          .result = {state, &state->object}};
}

ObjectCalls<std::string> scatter_object_calls(Membership& membership,
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
  const auto state = std::make_shared<Single>();
  for (const Buffer& object : objects) {
    state->sizes.push_back(object.count);
  }
  return {.sizes = scatter_call(membership,
                                is_root ? as_buffer(std::span(state->sizes)) : Buffer(),
                                as_buffer(std::span(&state->size, 1)),
                                {.root = root, .timeout = options.timeout, .label = kSizesLabel}),
          .bytes =
              [&membership, objects, root, is_root, options, state] {
                make_room(state->object, state->size);
                return scatter_call(
                    membership,
                    std::span<const Buffer>(is_root ? objects : std::vector<Buffer>()),
                    room_of(state->object),
                    {.root = root, .timeout = options.timeout, .label = kObjectsLabel});
              },
          .result = {state, &state->object}};
}

}  // namespace unisono::comm
