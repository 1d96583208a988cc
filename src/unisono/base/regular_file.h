#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "unisono/base/fd.h"

namespace unisono {

/// A regular file that is open for reading. Thread-safe but for what moves the descriptor.
class RegularFile {
 public:
  /// Throws Error: kNotFound, kSystem, or kInvalidArgument when `path` is a folder or a device.
  explicit RegularFile(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Its size when it was opened.
  [[nodiscard]] std::uint64_t n_bytes() const { return n_bytes_; }

  /// Fills `into` from where the descriptor stands, which moves; returns fewer bytes than it holds
  /// only at the file's end. Throws Error(kSystem).
  std::size_t read(std::span<std::byte> into);

  /// Fills `into` from `offset` on; returns fewer bytes than it holds only at the file's end, also
  /// where that has come nearer since. Throws Error(kSystem).
  [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  Fd file_;
  std::uint64_t n_bytes_;
};

}  // namespace unisono
