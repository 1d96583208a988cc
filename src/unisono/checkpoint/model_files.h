#pragma once

#include <map>
#include <string>
#include <vector>

namespace unisono::checkpoint {

/// The files of one model in a folder that has no manifest.
struct ModelFiles {
  std::vector<std::string> files;             ///< Names in the folder, sorted.
  std::map<std::string, std::string> places;  ///< Tensor to file, as the index lists them.
  std::string index;                          ///< Name of the index; empty without one.
};

/// Whether a file's name is that of an index: "model.safetensors.index.json".
[[nodiscard]] bool is_index_name(const std::string& name);

/// The safetensors files in a folder, sorted, without those that systems and tools leave behind
/// ("._model.safetensors").
///
/// Throws Error(kSystem) for a folder that cannot be read.
[[nodiscard]] std::vector<std::string> safetensors_files(const std::string& folder);

/// The files that make up the model: those that the folder's index names; without an index, all
/// files of the same name before their numbers ("model-00001-of-00002.safetensors").
///
/// Throws Error: kNotFound for a folder without safetensors files and index; kInvalidArgument for
/// files of several models or several indices, of which the caller has to choose one; kCorruptData,
/// with file and tensor, for a file that the index or the numbers promise and that is missing, and
/// for an index that is damaged.
[[nodiscard]] ModelFiles find_model_files(const std::string& folder);

/// The files that the index `name` in the folder names. Throws as find_model_files().
[[nodiscard]] ModelFiles read_index(const std::string& folder, const std::string& name);

}  // namespace unisono::checkpoint
