#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/data/readers/tar_reader.h"

namespace unisono {

class LeftOut;

/// Files of one sample: "cat/07.jpg" and "cat/07.cls" are sample "cat/07" with parts "jpg", "cls".
struct ShardSample {
  std::string key;
  std::map<std::string, std::vector<std::byte>> parts;
  std::string shard;         ///< The archive it is from.
  std::uint64_t offset = 0;  ///< Of its first header there.
};

/// Reads the samples of tar archives from front to back, as webdataset has them: files that follow
/// each other and have the same name up to the first dot (of its last part) make a sample. Files
/// without a dot are left out, as is what systems and tools leave behind (._1.jpg, __MACOSX,
/// @eaDir,
/// ...); one line of the log counts both behind the last archive. In memory for one sample. Not
/// thread-safe.
///
/// Samples can't be fetched by index, so it is the archives that are dealt to ranks:
///
///     for (const std::int64_t shard : sampler.indices()) { mine.push_back(paths[shard]); }
class ShardReader {
 public:
  /// Archives are opened as they are come to.
  explicit ShardReader(std::vector<std::string> paths);
  ~ShardReader();
  ShardReader(ShardReader&&) noexcept;
  ShardReader& operator=(ShardReader&&) noexcept;
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  /// The next sample, or nothing behind the last archive.
  ///
  /// Throws Error as TarReader, and kCorruptData when a sample has the same part twice.
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
  std::optional<PendingFile> pending_;  // the first file of the next sample, its content unread
};

}  // namespace unisono
