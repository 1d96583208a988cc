#include "unisono/pipeline/message.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"

namespace unisono::pipeline {
namespace {

constexpr std::uint32_t kMagic = 0x31504E55;  // "UNP1"
constexpr std::size_t kMaxDescription = std::size_t{1} << 27;
constexpr std::uint8_t kDefined = 1;
constexpr std::uint8_t kNeedsGradient = 2;

void put(ByteWriter& writer, const SentTensor& tensor) {
  writer.put<std::uint8_t>((tensor.is_defined ? kDefined : 0) |
                           (tensor.needs_gradient ? kNeedsGradient : 0));
  writer.put(static_cast<std::uint8_t>(tensor.dtype));
  writer.put(static_cast<std::uint8_t>(tensor.sizes.size()));
  for (const std::int64_t size : tensor.sizes) {
    writer.put(size);
  }
}

// Returns true if the size in bytes fits in memory.
bool is_countable(const SentTensor& tensor) {
  std::int64_t left = std::numeric_limits<std::int64_t>::max() / 16;
  bool is_empty = false;
  for (const std::int64_t size : tensor.sizes) {
    if (size < 0) {
      return false;
    }
    is_empty |= size == 0;
    left /= std::max<std::int64_t>(size, 1);
  }
  return left > 0 || is_empty;
}

std::optional<SentTensor> get_tensor(ByteReader& reader) {
  const auto flags = reader.get<std::uint8_t>();
  const auto dtype = reader.get<std::uint8_t>();
  const auto n_dims = reader.get<std::uint8_t>();
  if (!flags || !dtype || !n_dims || *flags > (kDefined | kNeedsGradient) ||
      *dtype >= kDTypeCount) {
    return std::nullopt;
  }
  SentTensor tensor{.is_defined = (*flags & kDefined) != 0,
                    .needs_gradient = (*flags & kNeedsGradient) != 0,
                    .dtype = static_cast<DType>(*dtype)};
  for (int dim = 0; dim < *n_dims; ++dim) {
    const auto size = reader.get<std::int64_t>();
    if (!size) {
      return std::nullopt;
    }
    tensor.sizes.push_back(*size);
  }
  return is_countable(tensor) ? std::optional(std::move(tensor)) : std::nullopt;
}

}  // namespace

std::vector<std::byte> encode(const MessageInfo& info) {
  ByteWriter tensors;
  for (const SentTensor& tensor : info.tensors) {
    if (tensor.sizes.size() > std::numeric_limits<std::uint8_t>::max()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "pipeline: a tensor of more than 255 dimensions can't be sent");
    }
    put(tensors, tensor);
  }
  if (info.tensors.size() > std::numeric_limits<std::uint16_t>::max()) {
    throw Error(ErrorCode::kInvalidArgument, "pipeline: more than 65535 tensors can't be sent");
  }
  ByteWriter writer;
  writer.put(kMagic);
  constexpr std::size_t kBeforeTensors = 4 + 4 + 1 + 2;
  writer.put(static_cast<std::uint32_t>(kBeforeTensors + tensors.bytes().size()));
  writer.put<std::uint8_t>(info.has_chunk ? 1 : 0);
  writer.put(static_cast<std::uint16_t>(info.tensors.size()));
  writer.put_raw(tensors.bytes());
  std::vector<std::byte> bytes = std::move(writer).bytes();
  bytes.resize(std::max(bytes.size(), kFirstPart));
  return bytes;
}

std::optional<std::size_t> description_size(std::span<const std::byte> first_part) {
  ByteReader reader(first_part);
  const auto magic = reader.get<std::uint32_t>();
  const auto size = reader.get<std::uint32_t>();
  if (!magic || !size || *magic != kMagic || *size > kMaxDescription) {
    return std::nullopt;
  }
  return std::max<std::size_t>(*size, kFirstPart);
}

std::optional<MessageInfo> decode(std::span<const std::byte> description) {
  const auto size = description_size(description);
  if (!size || *size > description.size()) {
    return std::nullopt;
  }
  ByteReader reader(description.subspan(8));
  const auto has_chunk = reader.get<std::uint8_t>();
  const auto n_tensors = reader.get<std::uint16_t>();
  if (!has_chunk || !n_tensors || *has_chunk > 1) {
    return std::nullopt;
  }
  MessageInfo info{.has_chunk = *has_chunk == 1};
  for (int i = 0; i < *n_tensors; ++i) {
    std::optional<SentTensor> tensor = get_tensor(reader);
    if (!tensor) {
      return std::nullopt;
    }
    info.tensors.push_back(std::move(*tensor));
  }
  return info;
}

}  // namespace unisono::pipeline
