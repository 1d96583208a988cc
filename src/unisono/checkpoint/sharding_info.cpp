#include "unisono/checkpoint/sharding_info.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/checkpoint/json.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kInfoKey = "DCP_SHARDING_INFO";
constexpr std::int64_t kMostShardElements = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void fail(const std::string& where, const std::string& name, const std::string& what) {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: {} of tensor \"{}\" {}", where, kInfoKey, name, what));
}

// The list `key` of a tensor's entry, of a number for each axis.
std::vector<std::int64_t> numbers_of(const json& entry,
                                     const char* key,
                                     const StoredTensor& tensor,
                                     const std::string& where) {
  if (!entry.contains(key) || !entry[key].is_array() ||
      entry[key].size() != tensor.info.shape.size()) {
    fail(where,
         tensor.info.name,
         fmt::format("must have \"{}\" with {} numbers", key, tensor.info.shape.size()));
  }
  std::vector<std::int64_t> numbers;
  for (const json& number : entry[key]) {
    numbers.push_back(whole_number(
        number, kMostShardElements, where, fmt::format("\"{}\" of \"{}\"", key, tensor.info.name)));
  }
  return numbers;
}

StoredPart part_of(const StoredTensor& tensor, const json& entry, const std::string& where) {
  StoredPart part{.tensor = tensor.info, .box = whole_box(tensor.info.shape)};
  part.box.offsets = numbers_of(entry, "saved_offsets", tensor, where);
  if (entry.contains("shape")) {
    part.tensor.shape = numbers_of(entry, "shape", tensor, where);
  } else {
    for (std::size_t axis = 0; axis < tensor.info.shape.size(); ++axis) {
      if (part.box.offsets[axis] > kMostShardElements - tensor.info.shape[axis]) {
        fail(where, tensor.info.name, "has an offset that is too large");
      }
      part.tensor.shape[axis] += part.box.offsets[axis];
    }
  }
  if (!count_bytes(part.tensor.dtype, part.tensor.shape) ||
      !is_within(part.box, part.tensor.shape)) {
    fail(where,
         tensor.info.name,
         fmt::format("has {} in {}, which makes no sense",
                     describe(part.box),
                     describe(part.tensor.dtype, part.tensor.shape)));
  }
  return part;
}

}  // namespace

std::map<std::string, std::string> sharding_metadata(const std::vector<StoredPart>& parts,
                                                     const std::string& where) {
  json info = json::object();
  for (const StoredPart& part : parts) {
    info[part.tensor.name] = {{"saved_offsets", part.box.offsets}, {"shape", part.tensor.shape}};
  }
  return {{kInfoKey, dump_json(info, where)}, {"DCP_VERSION", "1.0"}, {"format", "pt"}};
}

ShardingInfo sharding_of(const SafetensorsHeader& header, const std::string& where) {
  ShardingInfo info;
  const auto text = header.metadata.find(kInfoKey);
  json entries;
  if (text != header.metadata.end()) {
    entries = parse_json_object(text->second, where + ": " + kInfoKey);
  }
  for (const StoredTensor& tensor : header.tensors) {
    if (entries.is_null()) {
      info.parts.push_back({.tensor = tensor.info, .box = whole_box(tensor.info.shape)});
      info.is_shape_known.push_back(true);
      continue;
    }
    if (!entries.contains(tensor.info.name) || !entries[tensor.info.name].is_object()) {
      fail(where, tensor.info.name, "is missing");
    }
    const json& entry = entries[tensor.info.name];
    info.parts.push_back(part_of(tensor, entry, where));
    info.is_shape_known.push_back(entry.contains("shape"));
    info.is_of_this_library = info.is_of_this_library || entry.contains("shape");
  }
  return info;
}

}  // namespace unisono::checkpoint
