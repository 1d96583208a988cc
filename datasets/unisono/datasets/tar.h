#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace unisono {
class LeftOut;
}  // namespace unisono

namespace unisono::datasets {

/// A file in a tar archive.
struct TarEntry {
  std::string name;
  std::uint64_t n_bytes = 0;
  std::uint64_t offset = 0;  ///< Offset of the header in the decompressed archive.
};

/// Reads the regular files of a tar archive, plain or gzip, from front to back. Memory holds one
/// file at a time. Folders, links and devices are skipped.
///
/// The reader accepts archives of ustar, GNU tar, pax and macOS: names of any length, sizes beyond
/// 8 GiB, sparse files, and joined archives (`cat a.tar b.tar`). Not thread-safe.
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

  /// Returns the next file, or an empty optional at the end of the archive.
  ///
  /// Throws Error: kSystem; kCorruptData, with the archive and the number and offset of the header,
  /// for an invalid header, an archive that ends early or has no end mark (two blocks of zeros), a
  /// single block of zeros, other bytes after the end mark, and a sparse file with more than 256
  /// MiB of holes.
  [[nodiscard]] std::optional<TarEntry> next();

  /// Returns the content of the last file of next(), once. Memory grows only with content.
  ///
  /// Throws Error: kInvalidArgument without such a file; kCorruptData for a truncated file.
  [[nodiscard]] std::vector<std::byte> content();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The files of one sample: "cat/07.jpg" and "cat/07.cls" are sample "cat/07" with parts "jpg",
/// "cls".
struct ShardSample {
  std::string key;
  std::map<std::string, std::vector<std::byte>> parts;
  std::string shard;         ///< Path of the archive.
  std::uint64_t offset = 0;  ///< Offset of the first header in the archive.
};

/// Reads the samples of webdataset's tar archives from front to back. Consecutive files with the
/// same name up to the first dot of the last path component form a sample. Memory holds one sample
/// at a time. Files without a dot and files of systems and tools (._1.jpg, __MACOSX, @eaDir, ...)
/// are left out; one line of the log counts them after the last archive. Not thread-safe.
///
/// Samples have no index, so ranks share out archives:
///
///     for (const std::int64_t shard : sampler.indices()) { mine.push_back(paths[shard]); }
class ShardReader {
 public:
  /// The reader opens an archive when the previous archive has ended.
  explicit ShardReader(std::vector<std::string> paths);
  ~ShardReader();
  ShardReader(ShardReader&&) noexcept;
  ShardReader& operator=(ShardReader&&) noexcept;
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  /// Returns the next sample, or an empty optional after the last archive.
  ///
  /// Throws Error as TarReader, and kCorruptData for a sample with the same part twice.
  [[nodiscard]] std::optional<ShardSample> next();

 private:
  struct PendingFile {
    TarEntry entry;
    std::string key;
    std::string part;
  };

  [[nodiscard]] std::optional<PendingFile> next_file();
  void report_left_out();
  void add(const PendingFile& file, ShardSample& sample);

  std::vector<std::string> paths_;
  std::size_t n_opened_ = 0;
  std::optional<TarReader> archive_;
  std::unique_ptr<LeftOut> left_out_;
  std::optional<PendingFile> pending_;  // first file of the next sample, with unread content
};

}  // namespace unisono::datasets
