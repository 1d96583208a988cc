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
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {

struct ModelFiles;

/// A tensor of a checkpoint, and the parts that make it up: part `i` is `boxes[i]`, tensor
/// `indices[i]` of file `files[i]`.
struct CheckpointTensor {
  TensorInfo info;
  std::vector<Box> boxes;
  std::vector<std::size_t> files;
  std::vector<std::size_t> indices;
};

/// The tensors of a checkpoint, whoever saved it, on however many ranks: read whole or in parts,
/// however they were split. Not thread-safe.
class Reader {
 public:
  /// `path` is one of:
  /// - a safetensors file;
  /// - the folder of a checkpoint of this library: what is read is checked against the manifest's
  ///   sums;
  /// - the folder of a model of PyTorch's HuggingFaceStorageWriter or of another program: the files
  ///   that its index names or, without an index, the files of one name and all their numbers
  ///   ("model-00001-of-00002.safetensors");
  /// - the index of a model ("model.safetensors.index.json");
  /// - a folder of checkpoints: the latest one, whose bytes are checked when they are read; see
  ///   latest_checkpoint().
  ///
  /// Reads the headers of all files. A line of the log names files that are left out. Throws Error:
  /// kNotFound where nothing of that is there; kSystem; kIncompatible; kInvalidArgument for a
  /// folder with several models; kCorruptData for files and tensors that are missing, truncated or
  /// damaged, for a checkpoint of this library without its manifest, and for parts that overlap,
  /// leave a hole or contradict each other, with file, tensor and expectation.
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// The file or the checkpoint's folder.
  [[nodiscard]] const std::string& path() const { return path_; }

  /// By name.
  [[nodiscard]] const std::map<std::string, CheckpointTensor>& tensors() const { return tensors_; }

  /// Where this library has saved it.
  [[nodiscard]] const std::optional<Manifest>& manifest() const { return manifest_; }

  /// The names of the checkpoint's files.
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }

  /// Fills `into` with a part of a tensor, in row-major order. Reads no more of the files than the
  /// blocks in which it lies.
  ///
  /// Throws Error: kInvalidArgument for a tensor that is not there, a box outside it, memory of
  /// another size, and a box of elements of 4 or 6 bits that begins or ends within a byte; kSystem;
  /// kCorruptData.
  void read(const std::string& name, const Box& box, std::span<std::byte> into);

  /// The same for a whole tensor.
  void read(const std::string& name, std::span<std::byte> into);

  /// Reads all of all files, and throws kCorruptData unless each has the sums of the manifest.
  void verify();

  /// Bytes that were read from files so far, their headers included.
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
