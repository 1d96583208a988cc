#include "unisono/checkpoint/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/checkpoint/checked_file.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/latest.h"
#include "unisono/checkpoint/model_files.h"
#include "unisono/checkpoint/plan.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/safetensors_header.h"

namespace unisono::checkpoint {
namespace {

namespace fs = std::filesystem;

// Maximum number of open files: sufficient for a node's ranks, and below the usual limits for any
// number of shards.
constexpr std::size_t kMostOpen = 64;

// Splits a path into folder and file name.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const fs::path whole(path);
  return {whole.has_parent_path() ? whole.parent_path().string() : ".", whole.filename().string()};
}

}  // namespace

Reader::Reader(const std::string& path) : path_(path) {
  std::error_code ignored;
  is_folder_ = fs::is_directory(path, ignored);
  ModelFiles model;
  if (is_folder_) {
    path_ = resolve(path, {.reads_bytes = false});
    model = find_files();
  } else if (const auto [folder, name] = split_path(path); is_index_name(name)) {
    is_folder_ = true;
    path_ = folder;
    model = read_index(folder, name);
  } else {
    model.files = {path};
  }
  files_ = std::move(model.files);
  report_left_out(model.index);
  for (std::size_t file = 0; file < files_.size(); ++file) {
    add_file(file);
  }
  for (const auto& [name, tensor] : tensors_) {
    check_tensor(tensor);
  }
  for (const auto& [tensor, file] : model.places) {
    check_place(tensor, file, model.index);
  }
}

Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

ModelFiles Reader::find_files() {
  manifest_ = read_manifest(path_);
  if (!manifest_) {
    return find_model_files(path_);
  }
  ModelFiles model{.files = {}, .places = {}, .index = kManifestName};
  for (const Shard& shard : manifest_->shards) {
    model.files.push_back(shard.file);
  }
  return model;
}

// Logs the safetensors files in the folder that do not belong to the model.
void Reader::report_left_out(const std::string& index) const {
  if (index.empty()) {
    return;
  }
  std::vector<std::string> others = safetensors_files(path_);
  std::erase_if(others, [&](const std::string& name) {
    return std::find(files_.begin(), files_.end(), name) != files_.end();
  });
  if (!others.empty()) {
    base::Logger("checkpoint")
        .warning(fmt::format("{}: files left out, because {} does not name them: {}",
                             path_,
                             index,
                             fmt::join(others, ", ")));
  }
}

std::string Reader::file_path(std::size_t file) const {
  return is_folder_ ? path_ + "/" + files_[file] : files_[file];
}

std::optional<FileSums> Reader::sums_of(std::size_t file) const {
  return manifest_ ? std::optional(manifest_->shards[file].sums) : std::nullopt;
}

SafetensorsFile& Reader::open(std::size_t file) {
  if (const auto found = open_.find(file); found != open_.end()) {
    return *found->second;
  }
  if (open_.size() == kMostOpen) {
    n_read_closed_ += open_.begin()->second->n_read();
    open_.erase(open_.begin());
  }
  try {
    auto opened = std::make_unique<SafetensorsFile>(file_path(file), sums_of(file));
    return *open_.emplace(file, std::move(opened)).first->second;
  } catch (const Error& error) {
    if (!manifest_ || error.code() != ErrorCode::kNotFound) {
      throw;
    }
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: shard {} of {} is missing: there is no file {}",
                            path_,
                            file + 1,
                            files_.size(),
                            files_[file]));
  }
}

void Reader::add_file(std::size_t file) {
  const SafetensorsFile& opened = open(file);
  const ShardingInfo info = sharding_of(opened.header(), file_path(file));
  if (is_folder_ && !manifest_ && info.is_of_this_library) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: has no {}, which every checkpoint of this library has: the "
                            "checkpoint is not whole, and its bytes cannot be checked; use "
                            "another checkpoint",
                            path_,
                            kManifestName));
  }
  for (std::size_t index = 0; index < info.parts.size(); ++index) {
    const StoredPart& part = info.parts[index];
    const auto [entry, is_new] = tensors_.try_emplace(part.tensor.name);
    CheckpointTensor& tensor = entry->second;
    bool& is_known = is_shape_known_[part.tensor.name];
    if (is_new) {
      tensor.info = part.tensor;
      is_known = info.is_shape_known[index];
    } else if (is_known != info.is_shape_known[index]) {
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format(
              "{}: of tensor \"{}\", only one of this file and {} records the whole shape: they "
              "are not of one checkpoint",
              file_path(file),
              part.tensor.name,
              files_[tensor.files.front()]));
    } else if (!is_known && tensor.info.shape.size() == part.tensor.shape.size()) {
      for (std::size_t axis = 0; axis < part.tensor.shape.size(); ++axis) {
        tensor.info.shape[axis] = std::max(tensor.info.shape[axis], part.tensor.shape[axis]);
      }
    }
    if (tensor.info.dtype != part.tensor.dtype || (is_known && tensor.info != part.tensor) ||
        tensor.info.shape.size() != part.tensor.shape.size()) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: tensor \"{}\" is a part of {}, but in {} of {}",
                              file_path(file),
                              part.tensor.name,
                              describe(part.tensor.dtype, part.tensor.shape),
                              files_[tensor.files.front()],
                              describe(tensor.info.dtype, tensor.info.shape)));
    }
    tensor.boxes.push_back(part.box);
    tensor.files.push_back(file);
    tensor.indices.push_back(index);
  }
}

void Reader::check_tensor(const CheckpointTensor& tensor) const {
  const BoxPair overlap = find_overlap(tensor.boxes);
  if (overlap.first != overlap.second) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: tensor \"{}\" has {} in {} and {} in {}, which overlap",
                            path_,
                            tensor.info.name,
                            describe(tensor.boxes[overlap.first]),
                            files_[tensor.files[overlap.first]],
                            describe(tensor.boxes[overlap.second]),
                            files_[tensor.files[overlap.second]]));
  }
  const std::optional<std::int64_t> expected = count_elements(tensor.info.shape);
  std::int64_t n_elems = 0;
  // The sum cannot overflow: disjoint boxes have no more elements than the shape that contains
  // them.
  for (std::size_t i = 0; expected && i < tensor.boxes.size(); ++i) {
    n_elems += count_elements(tensor.boxes[i].sizes).value_or(0);
  }
  if (n_elems != expected) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: of tensor \"{}\", {}, {} of {} elements are present: a file is "
                            "missing",
                            path_,
                            tensor.info.name,
                            describe(tensor.info.dtype, tensor.info.shape),
                            n_elems,
                            expected.value_or(-1)));
  }
}

void Reader::check_place(const std::string& tensor,
                         const std::string& file,
                         const std::string& index) const {
  const auto found = tensors_.find(tensor);
  const bool is_there = found != tensors_.end() &&
                        std::any_of(found->second.files.begin(),
                                    found->second.files.end(),
                                    [&](std::size_t own_file) { return files_[own_file] == file; });
  if (!is_there) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}/{}: has no tensor \"{}\", which {} places there; download or copy "
                            "the model again",
                            path_,
                            file,
                            tensor,
                            index));
  }
}

void Reader::read(const std::string& name, const Box& box, std::span<std::byte> into) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: has no tensor \"{}\"", path_, name));
  }
  const CheckpointTensor& tensor = found->second;
  if (!is_within(box, tensor.info.shape) ||
      count_bytes(tensor.info.dtype, box.sizes) != into.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: tensor \"{}\" is {}; {} of it were requested into {} bytes",
                            path_,
                            name,
                            describe(tensor.info.dtype, tensor.info.shape),
                            describe(box),
                            into.size()));
  }
  const CopyPlan plan = plan_copies(tensor.boxes, box, tensor.info.dtype);
  if (plan.n_elems != count_elements(box.sizes)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: of tensor \"{}\", {} of the elements {} are present",
                            path_,
                            name,
                            plan.n_elems,
                            describe(box)));
  }
  if (!plan.is_of_whole_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: tensor \"{}\" is {}; the part {} begins or ends within a byte of "
                            "the file; read a part of whole bytes",
                            path_,
                            name,
                            describe(tensor.info.dtype, tensor.info.shape),
                            describe(box)));
  }
  for (const PlannedCopy& planned : plan.copies) {
    SafetensorsFile& file = open(tensor.files[planned.stored]);
    for_each_run(planned.copy, [&](std::uint64_t source, std::uint64_t target) {
      file.read(tensor.indices[planned.stored],
                source,
                into.subspan(static_cast<std::size_t>(target),
                             static_cast<std::size_t>(planned.copy.run_bytes)));
    });
  }
}

void Reader::read(const std::string& name, std::span<std::byte> into) {
  const auto found = tensors_.find(name);
  read(name, found == tensors_.end() ? Box{} : whole_box(found->second.info.shape), into);
}

void Reader::verify() {
  for (std::size_t file = 0; file < files_.size(); ++file) {
    CheckedFile(file_path(file), sums_of(file)).verify();
  }
}

std::uint64_t Reader::n_read() const {
  std::uint64_t n_bytes = n_read_closed_;
  for (const auto& [file, opened] : open_) {
    n_bytes += opened->n_read();
  }
  return n_bytes;
}

}  // namespace unisono::checkpoint
