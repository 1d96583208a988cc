#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"

namespace unisono::pipeline {

/// A tensor on its way from one stage to another.
struct SentTensor {
  bool is_defined = true;
  bool needs_gradient = false;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> sizes = {};

  friend bool operator==(const SentTensor&, const SentTensor&) = default;
};

/// What is sent of a chunk. docs/design/pipeline.md has its bytes.
struct MessageInfo {
  bool has_chunk = true;  ///< Of a batch with fewer samples than chunks some have none.
  std::vector<SentTensor> tensors = {};

  friend bool operator==(const MessageInfo&, const MessageInfo&) = default;
};

/// A message begins with as many bytes, which is what a receiver knows of it beforehand. What the
/// description takes beyond them follows.
inline constexpr std::size_t kFirstPart = 256;

/// Padded with zeros to `kFirstPart` at least. Throws Error(kInvalidArgument) for more than 65535
/// tensors, or 255 dimensions.
[[nodiscard]] std::vector<std::byte> encode(const MessageInfo& info);

/// How long the whole description is of which these are the first `kFirstPart` bytes. Nothing for
/// bytes that are none.
[[nodiscard]] std::optional<std::size_t> description_size(std::span<const std::byte> first_part);

/// Nothing for bytes that encode() does not make, and for tensors whose bytes can't be counted.
[[nodiscard]] std::optional<MessageInfo> decode(std::span<const std::byte> description);

}  // namespace unisono::pipeline
