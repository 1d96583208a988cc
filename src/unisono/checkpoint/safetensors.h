#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/checkpoint/file_sums.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {

class CheckedFile;

/// A tensor in a file.
struct StoredTensor {
  TensorInfo info;
  std::uint64_t offset = 0;  ///< Of its first byte, from the file's start.
  std::uint64_t n_bytes = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< In the order in which they lie in the file.
  std::map<std::string, std::string> metadata;
};

/// A tensor to be written: its elements in row-major order.
struct TensorBytes {
  TensorInfo info;
  std::span<const std::byte> bytes;
};

/// Writes a safetensors file, as the package `safetensors` reads it. It is there whole or not at
/// all: written beside, brought to the disk, then renamed.
///
/// Throws Error: kInvalidArgument for a name that is empty, doubled, "__metadata__" or not UTF-8,
/// bytes that do not fit the shape, and for complex128, which the format lacks; kSystem when the
/// folder is missing or the disk is full.
FileSums write_safetensors(const std::string& path,
                           std::span<const TensorBytes> tensors,
                           const std::map<std::string, std::string>& metadata = {});

/// A safetensors file that is read tensor by tensor, or in parts of them; its header is read when
/// it is opened. Not thread-safe.
class SafetensorsFile {
 public:
  /// Given sums, whatever is read is checked against them.
  ///
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device; kCorruptData, with
  /// file, tensor and what was expected, for a header that is no JSON of the format's form or has
  /// a name twice, a dtype that is not known, a shape that its bytes do not fit, tensors that
  /// overlap or leave bytes between them, and for a file that ends early or late.
  explicit SafetensorsFile(const std::string& path, std::optional<FileSums> sums = std::nullopt);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }

  /// Fills `into` with bytes of tensor `index` of the header, from the tensor's byte `offset` on.
  ///
  /// Throws Error: kInvalidArgument for bytes beyond the tensor; kSystem; kCorruptData where the
  /// file has changed since, or its sums say so.
  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> into);

  /// Bytes that were read from the file so far.
  [[nodiscard]] std::uint64_t n_read() const;

 private:
  std::unique_ptr<CheckedFile> file_;
  SafetensorsHeader header_;
};

}  // namespace unisono::checkpoint
