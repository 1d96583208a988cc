#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace unisono {

/// A file within a tar archive.
struct TarEntry {
  std::string name;
  std::uint64_t n_bytes = 0;
  std::uint64_t offset = 0;  ///< Of its header in the archive, decompressed.
};

/// Reads the regular files of a tar archive from front to back, plain or gzip, one in memory at a
/// time. Folders, links and devices are skipped.
///
/// As ustar, GNU tar, pax and macOS write it: names of any length, sizes beyond 8 GiB, sparse
/// files. Of archives that are joined (`cat a.tar b.tar`) all are read. Not thread-safe.
///
/// Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar's manual,
/// "Basic Tar Format" and "Storing Sparse Files".
class TarReader {
 public:
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device.
  explicit TarReader(const std::string& path);
  ~TarReader();
  TarReader(TarReader&&) noexcept;
  TarReader& operator=(TarReader&&) noexcept;
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  /// The next file, or nothing at the end of the archive.
  ///
  /// Throws Error: kSystem; kCorruptData, with the archive, the number of the header and its
  /// offset, for a header that is none, an archive that ends early, also without the two blocks of
  /// zeros that mark its end, a single block of zeros, bytes behind the end mark that are no
  /// archive, and a sparse file with holes of more than 256 MiB in all.
  [[nodiscard]] std::optional<TarEntry> next();

  /// All of the file that next() has returned, once. Memory grows only as the content comes.
  ///
  /// Throws Error: kInvalidArgument when there is no such file; kCorruptData when it ends early.
  [[nodiscard]] std::vector<std::byte> content();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono
