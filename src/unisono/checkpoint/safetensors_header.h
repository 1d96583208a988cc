#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "unisono/checkpoint/checked_file.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {

/// What stands in a file before the tensors, and the order in which they follow.
struct EncodedHeader {
  std::string bytes;
  std::vector<std::size_t> order;  ///< Indices into the tensors.
};

/// Throws Error(kInvalidArgument), which begins with `where`, for a name that is empty,
/// "__metadata__", doubled or not UTF-8, a shape that makes no sense, and a dtype that the format
/// lacks.
[[nodiscard]] EncodedHeader encode_header(std::span<const TensorInfo> tensors,
                                          const std::map<std::string, std::string>& metadata,
                                          const std::string& where);

/// Throws Error(kCorruptData), which names the file, for anything but a whole file: see
/// SafetensorsFile.
[[nodiscard]] SafetensorsHeader decode_header(CheckedFile& file);

}  // namespace unisono::checkpoint
