#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace unisono::checkpoint {

/// Every block but the last of a file has so many bytes.
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

/// Files are written and read in pieces of so many bytes, so that the sum of each is taken while it
/// is in the cache.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 17;

/// How long a file is, and the CRC-32 of all of it and of each of its blocks: who reads a part
/// checks the blocks that it lies in.
struct FileSums {
  std::uint64_t n_bytes = 0;
  std::uint32_t crc32 = 0;
  std::vector<std::uint32_t> block_crc32s;

  friend bool operator==(const FileSums&, const FileSums&) = default;
};

/// Makes the sums of a file as it is written, from front to back.
class FileSummer {
 public:
  void add(std::span<const std::byte> bytes);

  [[nodiscard]] FileSums sums() const;

 private:
  FileSums sums_;              // of the whole blocks
  std::uint32_t block_ = 0;    // CRC-32 of what the last block has so far
  std::uint64_t n_block_ = 0;  // bytes that it has so far
};

/// The CRC-32 of zip files. `seed` is that of the bytes before.
[[nodiscard]] std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t seed = 0);

}  // namespace unisono::checkpoint
