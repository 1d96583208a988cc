#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"

namespace unisono {

/// A regular file that is open for reading. Closes the file in the destructor. Thread-safe except
/// for read() and moves.
class RegularFile {
 public:
  /// Opens the file. Throws Error: kNotFound, kSystem, or kInvalidArgument if `path` is a folder or
  /// a device.
  explicit RegularFile(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Returns the size of the file when it was opened.
  [[nodiscard]] std::uint64_t n_bytes() const { return n_bytes_; }

  /// Fills `into` from the current position and advances the position. Returns fewer bytes than
  /// requested only at the end of the file. Throws Error(kSystem).
  std::size_t read(std::span<std::byte> into);

  /// Fills `into` from `offset`. Returns fewer bytes than requested only at the end of the file,
  /// which may have been truncated after opening. Throws Error(kSystem).
  [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  Fd file_;
  std::uint64_t n_bytes_;
};

/// Writes a file that appears under its name complete or not at all.
///
/// The constructor creates a temporary file with a unique name in the same folder; commit() renames
/// the temporary file. Without commit() the destructor removes the temporary file, and an older
/// file of that name stays unchanged. Not thread-safe.
class AtomicFile {
 public:
  /// Throws Error(kSystem) if the folder does not exist or is not writable, Error(kInvalidArgument)
  /// if `path` is a folder or a device.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  AtomicFile(AtomicFile&&) = delete;
  AtomicFile& operator=(AtomicFile&&) = delete;

  /// Appends bytes. Does not throw, because most writers of file formats cannot handle an exception
  /// between two parts of a file: after a failure later bytes are dropped, and flush() or commit()
  /// throws.
  void write(std::span<const std::byte> bytes) noexcept;

  /// Waits until all bytes are on disk. Throws Error(kSystem) if this or an earlier write() has
  /// failed.
  void flush();

  /// Calls flush(), renames the temporary file to its final name, and waits until the new folder
  /// entry is on disk. Throws Error(kSystem).
  void commit();

 private:
  [[noreturn]] void fail(const std::string& step, int error_number) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Fd fd_;
  int write_error_ = 0;
};

/// Waits until the entries of a folder are on disk. Returns at once if the file system does not
/// support this or if the folder may not be read. Throws Error(kSystem).
void sync_folder(const std::filesystem::path& folder);

/// Number of bytes at the beginning of a file that check_no_placeholder() needs.
inline constexpr std::size_t kPlaceholderBytes = 1024;

/// Checks that a data file is the file itself and not a substitute that a tool left in its place: a
/// pointer file of Git LFS or git-annex, or a web page that was saved by a download.
///
/// `name` is the path, for error messages. `beginning` holds at least the first kPlaceholderBytes
/// bytes, or all bytes of a shorter file. Throws Error(kCorruptData) that names the substitute and
/// the command that fetches the file.
void check_no_placeholder(const std::string& name, std::span<const std::byte> beginning);

/// Returns true if an operating system, file server, archiver, editor or version control left the
/// entry behind: a part of its path begins with a dot or is a name such as __MACOSX, @eaDir or
/// Thumbs.db. Such an entry is not a class, sample or shard of a data set or model.
///
/// `path` is relative to the folder or archive that is read, so that a user may keep all data below
/// a folder with a name that begins with a dot. Parts "." and ".." do not count.
[[nodiscard]] bool is_left_behind(std::string_view path);

/// Counts the entries that a reader leaves out, for one line of the log. Not thread-safe.
class LeftOut {
 public:
  /// Counts an entry for which is_left_behind() is true, or that has another type or extension than
  /// the reader supports. `path` is relative to the folder or archive.
  void add(std::string_view path);

  /// Writes one line with the numbers and the first names. Writes no line if all entries were read.
  ///
  /// `where` begins the line and names the folder or archive.
  void report(const base::Logger& logger, std::string_view where) const;

 private:
  struct Kind {
    std::size_t n_entries = 0;
    std::vector<std::string> first;
  };

  Kind left_behind_;
  Kind others_;
};

}  // namespace unisono
