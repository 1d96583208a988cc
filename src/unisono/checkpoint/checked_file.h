#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/regular_file.h"
#include "unisono/checkpoint/file_sums.h"

namespace unisono::checkpoint {

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
