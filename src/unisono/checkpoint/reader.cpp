#include "unisono/checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/plan.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/sharding_info.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {
namespace {

namespace fs = std::filesystem;

// Enough for a node's ranks; below the usual limits of open files, whatever the number of shards.
constexpr std::size_t kMostOpen = 64;

std::vector<std::string> safetensors_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") {
      names.push_back(entry->path().filename().string());
    }
  }
  if (error) {
    throw system_error(folder + ": can't read the folder", error.value());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Reader::Reader(const std::string& path) : path_(path) {
  std::error_code ignored;
  is_folder_ = fs::is_directory(path, ignored);
  if (is_folder_) {
    path_ = resolve(path);
    find_files();
  } else {
    files_ = {path};
  }
  for (std::size_t file = 0; file < files_.size(); ++file) {
    add_file(file);
  }
  for (const auto& [name, tensor] : tensors_) {
    check_tensor(tensor);
  }
}

Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

void Reader::find_files() {
  manifest_ = read_manifest(path_);
  if (manifest_) {
    for (const Shard& shard : manifest_->shards) {
      files_.push_back(shard.file);
    }
    return;
  }
  files_ = safetensors_files(path_);
  if (files_.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: is no checkpoint: it has no {}, no file \"latest\" and no "
                            ".safetensors file",
                            path_,
                            kManifestName));
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
              "{}: of tensor \"{}\", only one of this file and {} says the whole shape: they "
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
  // Boxes that do not overlap have no more elements than the shape that they lie in.
  for (std::size_t i = 0; expected && i < tensor.boxes.size(); ++i) {
    n_elems += count_elements(tensor.boxes[i].sizes).value_or(0);
  }
  if (n_elems != expected) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: of tensor \"{}\", {}, {} of {} elements are there: a file is "
                            "missing",
                            path_,
                            tensor.info.name,
                            describe(tensor.info.dtype, tensor.info.shape),
                            n_elems,
                            expected.value_or(-1)));
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
                fmt::format("{}: tensor \"{}\" is {}; {} of it were asked for into {} bytes",
                            path_,
                            name,
                            describe(tensor.info.dtype, tensor.info.shape),
                            describe(box),
                            into.size()));
  }
  const CopyPlan plan = plan_copies(tensor.boxes, box, tensor.info.dtype);
  if (plan.n_elems != count_elements(box.sizes)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: of tensor \"{}\", {} of the elements {} are there",
                            path_,
                            name,
                            plan.n_elems,
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
