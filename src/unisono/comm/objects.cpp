#include "unisono/comm/objects.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono {
namespace {

// const_cast: a buffer is for inputs and outputs, and this one is never written.
Buffer view_of(std::string_view bytes) {
  return {.data = const_cast<char*>(bytes.data()),
          .count = static_cast<std::int64_t>(bytes.size()),
          .dtype = DType::kUInt8};
}

Buffer room_of(std::string& bytes) {
  return {.data = bytes.data(),
          .count = static_cast<std::int64_t>(bytes.size()),
          .dtype = DType::kUInt8};
}

// A place for each object, of the sizes that came.
std::vector<Buffer> make_room(std::vector<std::string>& objects,
                              std::span<const std::int64_t> sizes) {
  std::vector<Buffer> buffers;
  for (const std::int64_t size : sizes) {
    objects.emplace_back(static_cast<std::size_t>(size), '\0');
  }
  for (std::string& object : objects) {
    buffers.push_back(room_of(object));
  }
  return buffers;
}

}  // namespace

std::vector<std::string> all_gather_object(ProcessGroup& group,
                                           std::string_view object,
                                           const ObjectOptions& options) {
  auto size = static_cast<std::int64_t>(object.size());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(group.world_size()));
  group.all_gather(as_buffer(std::span(&size, 1)),
                   as_buffer(std::span(sizes)),
                   {.timeout = options.timeout, .label = "the sizes of objects"});
  std::vector<std::string> objects;
  const std::vector<Buffer> outs = make_room(objects, sizes);
  group.all_gather(view_of(object), outs, {.timeout = options.timeout, .label = "objects"});
  return objects;
}

std::vector<std::string> gather_object(ProcessGroup& group,
                                       std::string_view object,
                                       int root,
                                       const ObjectOptions& options) {
  const bool is_root = group.rank() == root;
  auto size = static_cast<std::int64_t>(object.size());
  std::vector<std::int64_t> sizes(is_root ? static_cast<std::size_t>(group.world_size()) : 0);
  group.gather(as_buffer(std::span(&size, 1)),
               is_root ? as_buffer(std::span(sizes)) : Buffer(),
               {.root = root, .timeout = options.timeout, .label = "the sizes of objects"});
  std::vector<std::string> objects;
  const std::vector<Buffer> outs = make_room(objects, sizes);
  group.gather(view_of(object),
               std::span<const Buffer>(outs),
               {.root = root, .timeout = options.timeout, .label = "objects"});
  return objects;
}

std::string broadcast_object(ProcessGroup& group,
                             std::string_view object,
                             int root,
                             const ObjectOptions& options) {
  auto size = static_cast<std::int64_t>(object.size());
  group.broadcast(as_buffer(std::span(&size, 1)),
                  {.root = root, .timeout = options.timeout, .label = "the size of an object"});
  std::string result(object);
  result.resize(static_cast<std::size_t>(size));
  group.broadcast(room_of(result),
                  {.root = root, .timeout = options.timeout, .label = "an object"});
  return result;
}

std::string scatter_object(ProcessGroup& group,
                           const std::vector<std::string>& objects,
                           int root,
                           const ObjectOptions& options) {
  const bool is_root = group.rank() == root;
  if (is_root && objects.size() != static_cast<std::size_t>(group.world_size())) {
    throw group.refuse("scatter_object",
                       fmt::format("there are {} objects, where a world of {} needs one per rank",
                                   objects.size(),
                                   group.world_size()));
  }
  std::vector<std::int64_t> sizes;
  std::vector<Buffer> ins;
  for (const std::string& object : objects) {
    sizes.push_back(static_cast<std::int64_t>(object.size()));
    ins.push_back(view_of(object));
  }
  std::int64_t size = 0;
  group.scatter(is_root ? as_buffer(std::span(sizes)) : Buffer(),
                as_buffer(std::span(&size, 1)),
                {.root = root, .timeout = options.timeout, .label = "the sizes of objects"});
  std::string result(static_cast<std::size_t>(size), '\0');
  group.scatter(std::span<const Buffer>(is_root ? ins : std::vector<Buffer>()),
                room_of(result),
                {.root = root, .timeout = options.timeout, .label = "objects"});
  return result;
}

}  // namespace unisono
