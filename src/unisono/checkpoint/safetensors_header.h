#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/checkpoint/checked_file.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {

/// The bytes of a file before the tensors, and the order of the tensors after them.
struct EncodedHeader {
  std::string bytes;
  std::vector<std::size_t> order;  ///< Indices into the tensors.
};

/// Encodes a header. Throws Error(kInvalidArgument) with a message that begins with `where` for a
/// name that is empty, "__metadata__", duplicate or not UTF-8, an invalid shape, and a dtype that
/// the format lacks.
[[nodiscard]] EncodedHeader encode_header(std::span<const TensorInfo> tensors,
                                          const std::map<std::string, std::string>& metadata,
                                          const std::string& where);

/// Reads and parses the header. Throws Error(kCorruptData), which names the file, unless the file
/// is complete: see SafetensorsFile.
[[nodiscard]] SafetensorsHeader decode_header(CheckedFile& file);

/// The tensor and the box to which a file's tensor belongs.
struct StoredPart {
  TensorInfo tensor;  ///< The complete tensor.
  Box box;
};

/// Returns the metadata that describes the parts in a file for PyTorch's HuggingFaceStorageReader.
/// This library additionally stores the shapes of the complete tensors.
[[nodiscard]] std::map<std::string, std::string> sharding_metadata(
    const std::vector<StoredPart>& parts, const std::string& where);

/// The parts in a file, in the order of its tensors. Without sharding metadata the tensors are
/// complete. Files of PyTorch do not contain the complete shapes: the shape then ends at the end of
/// the part.
struct ShardingInfo {
  std::vector<StoredPart> parts;
  std::vector<bool> is_shape_known;
  /// True if a complete shape is stored, which only this library does.
  bool is_of_this_library = false;
};

/// Returns the sharding of a file's tensors. Throws Error(kCorruptData) with a message that begins
/// with `where`.
[[nodiscard]] ShardingInfo sharding_of(const SafetensorsHeader& header, const std::string& where);

}  // namespace unisono::checkpoint
