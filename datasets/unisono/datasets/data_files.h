#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/file.h"
#include "unisono/base/text.h"

namespace unisono::datasets {

/// The bytes of a regular file from front to back. Gzip is detected by content, whatever the name,
/// and decompressed; consecutive gzip members form one content. Not thread-safe.
class FileSource {
 public:
  /// Throws Error: kNotFound, kSystem; kInvalidArgument when `path` is a folder or a device;
  /// kCorruptData for a pointer of Git LFS or a web page in place of the file.
  explicit FileSource(std::string path);

  /// Fills `into`. Returns a number of bytes below the size of `into` only at the end of the
  /// content.
  ///
  /// Throws Error: kSystem, or kCorruptData for gzip data that is damaged or ends early.
  std::size_t read(std::span<std::byte> into);

  /// Appends `n_bytes` to `into`. Memory grows only with content. Returns the number of
  /// appended bytes, below `n_bytes` only at the end of the content. Throws as read().
  std::uint64_t append(std::uint64_t n_bytes, std::vector<std::byte>& into);

  /// Skips `n_bytes`. Returns the number of skipped bytes. Throws as read().
  std::uint64_t skip(std::uint64_t n_bytes);

  /// Size of the content of a plain file; an empty optional for gzip.
  [[nodiscard]] std::optional<std::uint64_t> content_bytes() const;

 private:
  struct InflateEnd {
    void operator()(z_stream* stream) const;
  };

  void refill();
  std::size_t copy_plain(std::span<std::byte> into);
  std::size_t inflate_some(std::span<std::byte> into);
  [[noreturn]] void throw_corrupt(int status) const;

  RegularFile file_;
  std::vector<std::byte> buffer_;
  std::span<std::byte> unread_;  // the part of buffer_ that read() has not returned yet
  std::unique_ptr<z_stream, InflateEnd> inflate_;
  bool inside_member_ = true;
  std::uint64_t n_inflated_ = 0;
};

/// Lines of a text file, plain or gzip. This function and TextLines::next() throw as FileSource.
[[nodiscard]] TextLines open_text(const std::string& path);

/// Throws Error unless `folder` is a folder: kNotFound, with `hint` as the remedy; kSystem;
/// kInvalidArgument for a path of another kind.
void check_data_folder(const std::string& folder, const std::string& hint);

/// Names of the entries of a folder, sorted. A link counts as its target.
struct FolderEntries {
  std::vector<std::string> folders;
  std::vector<std::string> others;
};

/// Lists folder `below` ("" or "a/b") of `root`. Entries with is_left_behind() are only counted in
/// `left_out`, by path below `root`. Throws Error(kSystem).
[[nodiscard]] FolderEntries list_folder(const std::filesystem::path& root,
                                        const std::string& below,
                                        LeftOut& left_out);

/// Names under which one file of a data set is published. Errors show the first name.
using Spellings = std::vector<std::string>;

/// Result of find_data_files().
struct FoundFiles {
  std::vector<std::string> paths;    ///< In the order of the data set's files.
  std::vector<std::string> missing;  ///< First spellings of the missing files.
};

/// Finds the files of a data set, plain or with ".gz" after the name, in `folder`, in the folder
/// `usual` there, or in another folder directly below. A file may lie in a folder of the file's own
/// name, because some programs unpack archives so.
///
/// Returns the first place with all files, or the place with the most files. Throws Error:
/// kInvalidArgument if several folders below `folder` have all files; kSystem.
[[nodiscard]] FoundFiles find_data_files(const std::filesystem::path& folder,
                                         const std::string& usual,
                                         const std::vector<Spellings>& files);

}  // namespace unisono::datasets
