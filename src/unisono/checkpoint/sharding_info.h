#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {

/// Which part of which tensor a file's tensor is.
struct StoredPart {
  TensorInfo tensor;  ///< The whole one.
  Box box;
};

/// The metadata that tells PyTorch's HuggingFaceStorageReader which parts a file has, and this
/// reader the whole tensors' shapes, too.
[[nodiscard]] std::map<std::string, std::string> sharding_metadata(
    const std::vector<StoredPart>& parts, const std::string& where);

/// The parts that a file's tensors are, in their order: whole tensors where it says nothing. A file
/// of PyTorch's does not tell the whole shapes: then a shape ends where the part does.
struct ShardingInfo {
  std::vector<StoredPart> parts;
  std::vector<bool> is_shape_known;
  bool is_of_this_library = false;  ///< Only files of this library have the whole shapes.
};

/// Throws Error(kCorruptData), which begins with `where`.
[[nodiscard]] ShardingInfo sharding_of(const SafetensorsHeader& header, const std::string& where);

}  // namespace unisono::checkpoint
