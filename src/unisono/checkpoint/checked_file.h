#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/regular_file.h"

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

/// A file that is read in parts, against its sums where there are some. Not thread-safe.
class CheckedFile {
 public:
  /// Throws Error as RegularFile does; kCorruptData when the file is not as long as its sums say.
  explicit CheckedFile(const std::string& path, std::optional<FileSums> sums = std::nullopt);

  [[nodiscard]] const std::string& path() const { return file_.path(); }

  [[nodiscard]] std::uint64_t n_bytes() const { return file_.n_bytes(); }

  /// Fills `into` with the bytes from `offset` on.
  ///
  /// Throws Error: kSystem; kCorruptData where the file ends before, or a block has not the sum
  /// that it was written with.
  void read_at(std::uint64_t offset, std::span<std::byte> into);

  /// Reads all of it. Throws as read_at().
  void verify();

  /// Bytes that were read from the file so far, for what parts cost.
  [[nodiscard]] std::uint64_t n_read() const { return n_read_; }

 private:
  void read_raw(std::uint64_t offset, std::span<std::byte> into);
  void read_block(std::uint64_t block, std::uint32_t expected, std::span<std::byte> into);
  [[nodiscard]] std::uint64_t bytes_of_block(std::uint64_t block) const;

  RegularFile file_;
  std::optional<FileSums> sums_;
  std::vector<std::byte> cached_;
  std::optional<std::uint64_t> cached_block_;
  std::uint64_t n_read_ = 0;
};

}  // namespace unisono::checkpoint
