#include "unisono/torch/tensor/agreement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/torch/tensor/hash.h"

namespace unisono {
namespace {

constexpr const char* kLabel = "comparison of ranks";

std::vector<std::byte> serialize(const std::vector<Property>& properties) {
  ByteWriter writer;
  for (const Property& property : properties) {
    writer.put_string(property.what);
    writer.put_string(property.value);
  }
  return std::move(writer).bytes();
}

std::vector<Property> deserialize(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  std::vector<Property> properties;
  while (!reader.rest().empty()) {
    std::optional<std::string> what = reader.get_string(bytes.size());
    std::optional<std::string> value = reader.get_string(bytes.size());
    if (!what || !value) {
      throw Error(ErrorCode::kCorruptData, "comparison of ranks: a rank sent malformed data");
    }
    properties.push_back({.what = std::move(*what), .value = std::move(*value)});
  }
  return properties;
}

std::string quote(const Property& property) {
  return property.what + " (" + property.value + ")";
}

bool is_equal_everywhere(ProcessGroup& group,
                         std::uint64_t value,
                         std::optional<std::chrono::milliseconds> timeout) {
  // The minimum of the complements is the complement of the maximum.
  std::array<std::uint64_t, 2> extremes{value, ~value};
  group.all_reduce(as_buffer(std::span<std::uint64_t>(extremes)),
                   {.op = kMin, .timeout = timeout, .label = kLabel});
  return extremes[0] == ~extremes[1];
}

std::vector<Property> receive_properties(ProcessGroup& group,
                                         int root,
                                         const std::vector<std::byte>& mine,
                                         std::optional<std::chrono::milliseconds> timeout) {
  const BroadcastOptions options{.root = root, .timeout = timeout, .label = kLabel};
  std::array<std::uint64_t, 1> size{mine.size()};
  group.broadcast(as_buffer(std::span<std::uint64_t>(size)), options);
  std::vector<std::byte> bytes = mine;
  bytes.resize(size[0]);
  group.broadcast({.data = bytes.data(),
                   .count = static_cast<std::int64_t>(bytes.size()),
                   .dtype = DType::kUInt8},
                  options);
  return deserialize(bytes);
}

}  // namespace

std::optional<std::string> find_difference(const std::vector<Property>& properties,
                                           int rank,
                                           const std::vector<Property>& other_properties,
                                           int other_rank) {
  const std::string here = "rank " + std::to_string(rank);
  const std::string there = "rank " + std::to_string(other_rank);
  const std::size_t n_common = std::min(properties.size(), other_properties.size());
  for (std::size_t i = 0; i < n_common; ++i) {
    if (properties[i].what != other_properties[i].what) {
      return here + " has " + quote(properties[i]) + " where " + there + " has " +
             quote(other_properties[i]);
    }
    if (properties[i].value != other_properties[i].value) {
      return properties[i].what + " is " + properties[i].value + " on " + here + " and " +
             other_properties[i].value + " on " + there;
    }
  }
  if (properties.size() > n_common) {
    return here + " has " + quote(properties[n_common]) + ", which " + there + " lacks";
  }
  if (other_properties.size() > n_common) {
    return there + " has " + quote(other_properties[n_common]) + ", which " + here + " lacks";
  }
  return std::nullopt;
}

void check_agreement(ProcessGroup& group,
                     const std::vector<Property>& properties,
                     const std::string& problem,
                     std::optional<std::chrono::milliseconds> timeout) {
  const std::vector<std::byte> mine = serialize(properties);
  if (is_equal_everywhere(group, hash_bytes(mine), timeout)) {
    return;
  }
  const std::vector<Property> first = receive_properties(group, 0, mine, timeout);
  std::optional<std::string> difference;
  // Every rank takes part in every broadcast, even after the first difference.
  for (int rank = 1; rank < group.world_size(); ++rank) {
    const std::vector<Property> other = receive_properties(group, rank, mine, timeout);
    if (!difference) {
      difference = find_difference(first, 0, other, rank);
    }
  }
  throw Error(ErrorCode::kMismatch,
              problem + ": " + difference.value_or("equal descriptions have different hashes"));
}

}  // namespace unisono
