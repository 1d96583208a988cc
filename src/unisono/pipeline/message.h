#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"

namespace unisono::pipeline {

/// A tensor that a stage sends to another stage.
struct SentTensor {
  bool is_defined = true;
  bool needs_gradient = false;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> sizes = {};

  friend bool operator==(const SentTensor&, const SentTensor&) = default;
};

/// The content of a chunk's message. docs/design/pipeline.md specifies the bytes.
struct MessageInfo {
  bool has_chunk = true;  ///< False for the last chunks of a batch with fewer samples than chunks.
  std::vector<SentTensor> tensors = {};

  friend bool operator==(const MessageInfo&, const MessageInfo&) = default;
};

/// Size of a message's first part, for which a receiver can post a buffer before the message is
/// known. The rest of a longer description follows in a second part.
inline constexpr std::size_t kFirstPart = 256;

/// Encodes a description, padded with zeros to at least `kFirstPart` bytes. Throws
/// Error(kInvalidArgument) for more than 65535 tensors, or 255 dimensions.
[[nodiscard]] std::vector<std::byte> encode(const MessageInfo& info);

/// Returns the size of the whole description from its first `kFirstPart` bytes, or std::nullopt for
/// bytes that are not a description.
[[nodiscard]] std::optional<std::size_t> description_size(std::span<const std::byte> first_part);

/// Returns std::nullopt for bytes that encode() does not produce, and for tensors of impossible
/// sizes.
[[nodiscard]] std::optional<MessageInfo> decode(std::span<const std::byte> description);

}  // namespace unisono::pipeline
