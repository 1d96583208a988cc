#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/file.h"
#include "unisono/checkpoint/manifest.h"

namespace unisono::checkpoint {

/// A file that is read in parts and verified against check sums, if there are any. Caches one block
/// for small reads. Errors are thrown as Error. Not thread-safe.
class CheckedFile {
 public:
  /// Opens the file. Throws the errors of RegularFile; kCorruptData if the length differs from the
  /// length in `sums`.
  explicit CheckedFile(const std::string& path, std::optional<FileSums> sums = std::nullopt);

  [[nodiscard]] const std::string& path() const { return file_.path(); }

  [[nodiscard]] std::uint64_t n_bytes() const { return file_.n_bytes(); }

  /// Fills `into` with the bytes from `offset`.
  ///
  /// Throws Error: kSystem; kCorruptData if the file ends early or a block does not match its check
  /// sum.
  void read_at(std::uint64_t offset, std::span<std::byte> into);

  /// Reads the whole file. Throws the errors of read_at().
  void verify();

  /// Returns the number of bytes read from the file so far, to measure the cost of partial reads.
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
