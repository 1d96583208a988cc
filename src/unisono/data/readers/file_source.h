#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/regular_file.h"
#include "unisono/base/text_lines.h"

namespace unisono::data {

/// The bytes of a regular file from front to back, decompressed when they are gzip, which the
/// content tells and not the name. Gzip members that follow each other are one content.
class FileSource {
 public:
  /// Throws Error: kNotFound, kSystem; kInvalidArgument when `path` is a folder or a device;
  /// kCorruptData for a pointer of Git LFS or a web page in place of the file.
  explicit FileSource(std::string path);

  /// Fills `into` from the front; returns fewer bytes than it holds only at the end of the content.
  ///
  /// Throws Error: kSystem, or kCorruptData for gzip data that is damaged or ends early.
  std::size_t read(std::span<std::byte> into);

  /// Appends `n_bytes` to `into`, which grows only as the content comes; returns how many came:
  /// fewer only at the end of the content. Throws as read().
  std::uint64_t append(std::uint64_t n_bytes, std::vector<std::byte>& into);

  /// Reads over `n_bytes`; returns how many were there. Throws as read().
  std::uint64_t skip(std::uint64_t n_bytes);

  /// The content's bytes where that is known from the start: not for gzip.
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
  std::span<std::byte> unread_;  // the part of buffer_ that read() has yet to use
  std::unique_ptr<z_stream, InflateEnd> inflate_;
  bool inside_member_ = true;
  std::uint64_t n_inflated_ = 0;
};

/// The lines of a text file, plain or gzip. Throws as FileSource and TextLines; so does next().
[[nodiscard]] TextLines open_text(const std::string& path);

}  // namespace unisono::data
