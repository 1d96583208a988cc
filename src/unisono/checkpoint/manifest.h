#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::checkpoint {

/// Size of each block of a file except the last.
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

/// Unit of reading and writing files. A piece fits into the cache while its check sum is computed.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 17;

/// Length of a file, CRC-32 of the whole file, and CRC-32 of each block. A partial read checks the
/// blocks that contain the part.
struct FileSums {
  std::uint64_t n_bytes = 0;
  std::uint32_t crc32 = 0;
  std::vector<std::uint32_t> block_crc32s;

  friend bool operator==(const FileSums&, const FileSums&) = default;
};

/// Computes the sums of a file that is written sequentially. Not thread-safe.
class FileSummer {
 public:
  /// Adds the next bytes of the file.
  void add(std::span<const std::byte> bytes);

  /// Returns the sums of all bytes added so far.
  [[nodiscard]] FileSums sums() const;

 private:
  FileSums sums_;              // sums of the complete blocks
  std::uint32_t block_ = 0;    // CRC-32 of the bytes in the last block so far
  std::uint64_t n_block_ = 0;  // number of bytes in the last block so far
};

/// Returns the CRC-32 (as in zip files) of `bytes` that follow bytes with the CRC-32 `seed`.
[[nodiscard]] std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t seed = 0);

/// File name of the manifest in the folder of a checkpoint.
inline constexpr const char* kManifestName = "manifest.json";

/// The file of one rank in a checkpoint.
struct Shard {
  std::string file;  ///< File name in the checkpoint's folder.
  FileSums sums;

  friend bool operator==(const Shard&, const Shard&) = default;
};

/// Content of a checkpoint. The manifest is written last, so that a folder without a manifest is
/// not a checkpoint.
struct Manifest {
  std::string release;  ///< Release of unisono that wrote the checkpoint.
  std::int64_t step = 0;
  int world_size = 1;
  std::vector<Shard> shards;  ///< Indexed by rank.

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// Returns a file name in the form of PyTorch's HuggingFaceStorageWriter:
/// "shard-00001-model-00001-of-00001.safetensors" for rank 0.
[[nodiscard]] std::string shard_name(int rank);

/// Returns the manifest as a JSON text that includes its own CRC-32.
[[nodiscard]] std::string encode_manifest(const Manifest& manifest);

/// Parses the output of encode_manifest(). Throws Error with a message that begins with `where`:
/// kCorruptData for other texts, kIncompatible for a manifest of another format version.
[[nodiscard]] Manifest decode_manifest(std::string_view text, const std::string& where);

}  // namespace unisono::checkpoint
