#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {

class CheckedFile;

/// A tensor in a file.
struct StoredTensor {
  TensorInfo info;
  std::uint64_t offset = 0;  ///< Position of the first byte, from the beginning of the file.
  std::uint64_t n_bytes = 0;
};

/// Content of the header of a safetensors file.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< In the order of their position in the file.
  std::map<std::string, std::string> metadata;
};

/// A tensor to be written: its elements in row-major order.
struct TensorBytes {
  TensorInfo info;
  std::span<const std::byte> bytes;
};

/// Writes a safetensors file in the format of the package `safetensors`. The file appears complete
/// or not at all: a temporary file is written, synced to disk, then renamed.
///
/// Throws Error: kInvalidArgument for a name that is empty, duplicate, "__metadata__" or not UTF-8,
/// for bytes that do not match the shape, and for complex128, which the format lacks; kSystem if
/// the folder is missing or the disk is full.
FileSums write_safetensors(const std::string& path,
                           std::span<const TensorBytes> tensors,
                           const std::map<std::string, std::string>& metadata = {});

/// A safetensors file, from which tensors are read completely or in parts. The constructor reads
/// the header. Errors are thrown as Error. Not thread-safe.
class SafetensorsFile {
 public:
  /// Opens the file and reads the header. With `sums` all bytes that are read are verified.
  ///
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device; kCorruptData, with
  /// file, tensor and expectation, for a header that is not JSON of the format or contains a
  /// duplicate name, an unknown dtype, a shape that does not match the number of bytes, tensors
  /// that overlap or leave gaps, and for a file that is too short or too long.
  explicit SafetensorsFile(const std::string& path, std::optional<FileSums> sums = std::nullopt);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// Returns the parsed header.
  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }

  /// Fills `into` with bytes of tensor `index` of the header, from the tensor's byte `offset`.
  ///
  /// Throws Error: kInvalidArgument for bytes beyond the tensor; kSystem; kCorruptData if the file
  /// was truncated since or does not match its sums.
  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> into);

  /// Returns the number of bytes read from the file so far.
  [[nodiscard]] std::uint64_t n_read() const;

 private:
  std::unique_ptr<CheckedFile> file_;
  SafetensorsHeader header_;
};

}  // namespace unisono::checkpoint
