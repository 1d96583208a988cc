#pragma once

#include <map>
#include <string>
#include <vector>

namespace unisono::checkpoint {

/// The files of one model in a folder without a manifest.
struct ModelFiles {
  std::vector<std::string> files;  ///< Sorted file names in the folder.
  /// Maps each tensor to its file, as listed by the index.
  std::map<std::string, std::string> places;
  std::string index;  ///< File name of the index; empty without an index.
};

/// Returns true for the file name of an index, such as "model.safetensors.index.json".
[[nodiscard]] bool is_index_name(const std::string& name);

/// Returns the sorted names of the safetensors files in a folder, without files such as
/// "._model.safetensors" that operating systems and tools leave behind.
///
/// Throws Error(kSystem) for a folder that cannot be read.
[[nodiscard]] std::vector<std::string> safetensors_files(const std::string& folder);

/// Returns the files of the model in a folder: the files that the folder's index names; without an
/// index, all files with the same name before their numbers ("model-00001-of-00002.safetensors").
///
/// Throws Error: kNotFound for a folder without safetensors files and index; kInvalidArgument for
/// files of several models or several indices, from which the caller must choose; kCorruptData,
/// with file and tensor, for a missing file that the index or the numbers require, and for a
/// damaged index.
[[nodiscard]] ModelFiles find_model_files(const std::string& folder);

/// Returns the files that the index `name` in the folder lists. Throws the errors of
/// find_model_files().
[[nodiscard]] ModelFiles read_index(const std::string& folder, const std::string& name);

}  // namespace unisono::checkpoint
