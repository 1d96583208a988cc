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

struct ModelFiles;
class SafetensorsFile;

/// A tensor of a checkpoint and its parts. Part `i` covers `boxes[i]` and is tensor `indices[i]` of
/// file `files[i]`.
struct CheckpointTensor {
  TensorInfo info;
  std::vector<Box> boxes;
  std::vector<std::size_t> files;
  std::vector<std::size_t> indices;
};

/// Reads the tensors of a checkpoint, complete or in parts. The program, the number of ranks and
/// the sharding that wrote the checkpoint do not matter.
///
/// Owns the open files, at most 64 at a time. Errors are thrown as Error. Movable; not thread-safe.
class Reader {
 public:
  /// `path` is one of:
  /// - a safetensors file;
  /// - the folder of a checkpoint of this library: all bytes that are read are verified with the
  ///   manifest's sums;
  /// - the folder of a model that PyTorch's HuggingFaceStorageWriter or another program wrote: the
  ///   files that the index names or, without an index, the numbered files with a common name
  ///   ("model-00001-of-00002.safetensors");
  /// - the index of a model ("model.safetensors.index.json");
  /// - a folder of checkpoints: the latest checkpoint, with bytes that are verified when read; see
  ///   latest_checkpoint().
  ///
  /// Reads the headers of all files. Logs the names of files that are ignored. Throws Error:
  /// kNotFound if the path contains no checkpoint; kSystem; kIncompatible; kInvalidArgument for a
  /// folder with several models; kCorruptData, with file, tensor and expectation, for files and
  /// tensors that are missing, truncated or damaged, for a checkpoint of this library without its
  /// manifest, and for parts that overlap, leave a gap or contradict each other.
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// Returns the file or the checkpoint's folder.
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Returns all tensors by name.
  [[nodiscard]] const std::map<std::string, CheckpointTensor>& tensors() const { return tensors_; }

  /// Returns the manifest if this library wrote the checkpoint.
  [[nodiscard]] const std::optional<Manifest>& manifest() const { return manifest_; }

  /// Returns the names of the checkpoint's files.
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }

  /// Fills `into` with a part of a tensor, in row-major order. Reads only the blocks that contain
  /// the part.
  ///
  /// Throws Error: kInvalidArgument for an unknown tensor, a box outside the tensor, memory of the
  /// wrong size, and a box with elements of 4 or 6 bits that begins or ends inside a byte; kSystem;
  /// kCorruptData.
  void read(const std::string& name, const Box& box, std::span<std::byte> into);

  /// Fills `into` with a complete tensor. Throws the errors of the overload above.
  void read(const std::string& name, std::span<std::byte> into);

  /// Reads all files completely. Throws kCorruptData if a block does not match the manifest's sums.
  void verify();

  /// Returns the number of bytes read from files so far, including headers.
  [[nodiscard]] std::uint64_t n_read() const;

 private:
  [[nodiscard]] ModelFiles find_files();
  void report_left_out(const std::string& index) const;
  void add_file(std::size_t file);
  void check_tensor(const CheckpointTensor& tensor) const;
  void check_place(const std::string& tensor,
                   const std::string& file,
                   const std::string& index) const;
  [[nodiscard]] std::string file_path(std::size_t file) const;
  [[nodiscard]] std::optional<FileSums> sums_of(std::size_t file) const;
  [[nodiscard]] SafetensorsFile& open(std::size_t file);

  std::string path_;
  bool is_folder_ = false;
  std::optional<Manifest> manifest_;
  std::vector<std::string> files_;
  std::map<std::string, CheckpointTensor> tensors_;
  std::map<std::string, bool> is_shape_known_;
  std::map<std::size_t, std::unique_ptr<SafetensorsFile>> open_;
  std::uint64_t n_read_closed_ = 0;
};

}  // namespace unisono::checkpoint
