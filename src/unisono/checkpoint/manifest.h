#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/checkpoint/file_sums.h"

namespace unisono::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";

/// One rank's file in a checkpoint.
struct Shard {
  std::string file;  ///< Its name in the checkpoint's folder.
  FileSums sums;

  friend bool operator==(const Shard&, const Shard&) = default;
};

/// What a checkpoint is made of: its last file, so that there is no checkpoint without it.
struct Manifest {
  std::string release;  ///< Of the unisono that wrote it.
  std::int64_t step = 0;
  int world_size = 1;
  std::vector<Shard> shards;  ///< By rank.

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// "shard-00001-model-00001-of-00001.safetensors" for rank 0: the names that PyTorch's
/// HuggingFaceStorageWriter gives.
[[nodiscard]] std::string shard_name(int rank);

/// A JSON text with the CRC-32 of itself.
[[nodiscard]] std::string encode_manifest(const Manifest& manifest);

/// Throws Error: kCorruptData, which begins with `where`, for what is not as encode_manifest()
/// makes it; kIncompatible for one of a later version of the format.
[[nodiscard]] Manifest decode_manifest(std::string_view text, const std::string& where);

}  // namespace unisono::checkpoint
