#include "unisono/checkpoint/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/base/text.h"
#include "unisono/checkpoint/json.h"
#include "unisono/checkpoint/manifest.h"

namespace unisono::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexInfix = ".safetensors.index";
constexpr std::string_view kOf = "-of-";
// Sufficient for an index of more than a million tensors.
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{1} << 28;

// Returns the sorted names in a folder, without the files that operating systems and tools leave
// there.
std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (std::string name = entry->path().filename().string(); !is_left_behind(name)) {
      names.push_back(std::move(name));
    }
  }
  if (error) {
    throw system_error(folder + ": can't read the folder", error.value());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Parts of a name such as "shard-00001-model-00002-of-00003.safetensors".
struct NameParts {
  std::string stem;         // "model"
  std::string number;       // "00002"; empty without numbers
  std::string_view before;  // "shard-00001-model-"
  std::string_view after;   // "-of-00003.safetensors"
  std::int64_t value = 0;   // 2
  std::int64_t total = 0;   // 3; 0 without numbers
};

// Removes the digits at the end of a text and returns them.
std::string_view take_digits(std::string_view& text) {
  const std::size_t last = text.find_last_not_of("0123456789");
  const std::size_t begin = last == std::string_view::npos ? 0 : last + 1;
  const std::string_view digits = text.substr(begin);
  text = text.substr(0, begin);
  return digits;
}

// Returns -1 if the text is not a number or the number is too large.
std::int64_t value_of(std::string_view digits) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() ? value : -1;
}

// Removes the prefix with the rank's number that PyTorch's HuggingFaceStorageWriter adds.
std::string_view without_rank(std::string_view stem) {
  constexpr std::string_view kShard = "shard-";
  if (!stem.starts_with(kShard)) {
    return stem;
  }
  const std::size_t end = stem.find('-', kShard.size());
  const bool is_rank = end != std::string_view::npos &&
                       value_of(stem.substr(kShard.size(), end - kShard.size())) >= 0;
  return is_rank ? stem.substr(end + 1) : stem;
}

NameParts parts_of(std::string_view name) {
  NameParts parts;
  std::string_view rest = name.substr(0, name.size() - kSuffix.size());
  parts.stem = without_rank(rest);
  const std::int64_t total = value_of(take_digits(rest));
  if (total < 1 || !rest.ends_with(kOf)) {
    return parts;
  }
  rest.remove_suffix(kOf.size());
  const std::string_view number = take_digits(rest);
  if (value_of(number) < 0 || !rest.ends_with('-')) {
    return parts;
  }
  parts.stem = without_rank(rest.substr(0, rest.size() - 1));
  parts.number = number;
  parts.before = rest;
  parts.after = name.substr(rest.size() + number.size());
  parts.value = value_of(number);
  parts.total = total;
  return parts;
}

// Throws Error(kCorruptData) unless the numbers are 1 to the total or, as some tools count, 0 to
// the total - 1.
void check_numbers(const std::string& folder, const std::vector<NameParts>& files) {
  const NameParts& any = files.front();
  std::set<std::int64_t> numbers;
  for (const NameParts& file : files) {
    numbers.insert(file.value);
  }
  const std::int64_t first = *numbers.begin() == 0 ? 0 : 1;
  if (*numbers.rbegin() >= first + any.total) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: a file has number {} of {}: the files are not of one model",
                            folder,
                            *numbers.rbegin(),
                            any.total));
  }
  const auto n_missing = any.total - static_cast<std::int64_t>(numbers.size());
  if (n_missing > 0) {
    std::int64_t missing = first;
    while (numbers.contains(missing)) {
      ++missing;
    }
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: {} of {} files of the model are missing, {}{:0{}}{} first; "
                            "download or copy the model again",
                            folder,
                            n_missing,
                            any.total,
                            any.before,
                            missing,
                            any.number.size(),
                            any.after));
  }
}

// Checks that the files belong to one model. Without an index only the names show this.
void check_names(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<NameParts> files;
  std::ranges::transform(names, std::back_inserter(files), parts_of);
  const auto other = std::ranges::find_if(files, [&](const NameParts& file) {
    return file.stem != files.front().stem || file.total != files.front().total;
  });
  if (other != files.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: has files of different models, {} and {}, and no index that names "
                            "the files of one; pass the path of one file, or move the files of "
                            "the others to another folder",
                            folder,
                            names.front(),
                            names[static_cast<std::size_t>(other - files.begin())]));
  }
  if (files.front().total > 0) {
    check_numbers(folder, files);
  }
}

// Throws Error(kCorruptData) unless `file` is the name of a safetensors file in the same folder.
void check_file_name(const std::string& where, const std::string& tensor, const std::string& file) {
  if (!file.ends_with(kSuffix) || file.find('/') != std::string::npos) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: tensor \"{}\": \"{}\" is not the name of a safetensors file in "
                            "the folder of the index",
                            where,
                            tensor,
                            escape_text(file)));
  }
}

}  // namespace

bool is_index_name(const std::string& name) {
  return name.ends_with(".json") && name.find(kIndexInfix) != std::string::npos;
}

std::vector<std::string> safetensors_files(const std::string& folder) {
  std::vector<std::string> names = entries_of(folder);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(kSuffix); });
  return names;
}

ModelFiles find_model_files(const std::string& folder) {
  std::vector<std::string> indices = entries_of(folder);
  std::erase_if(indices, [](const std::string& name) { return !is_index_name(name); });
  if (indices.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: has the indices of several models: {}; pass the path of one index",
                            folder,
                            fmt::join(indices, ", ")));
  }
  if (!indices.empty()) {
    return read_index(folder, indices.front());
  }
  ModelFiles model{.files = safetensors_files(folder), .places = {}, .index = {}};
  if (model.files.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: is not a checkpoint: it has no {}, no file \"latest\" and no "
                            ".safetensors file",
                            folder,
                            kManifestName));
  }
  check_names(folder, model.files);
  return model;
}

ModelFiles read_index(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  const nlohmann::json index = parse_json_object(read_text(path, kMostIndexBytes), path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    throw Error(ErrorCode::kCorruptData,
                path + ": has no \"weight_map\" that names the file of each tensor");
  }
  ModelFiles model{.files = {}, .places = {}, .index = name};
  std::map<std::string, std::vector<std::string>> tensors;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: the file of tensor \"{}\" is not a string", path, tensor));
    }
    check_file_name(path, tensor, file.get<std::string>());
    model.places.emplace(tensor, file.get<std::string>());
    tensors[file.get<std::string>()].push_back(tensor);
  }
  for (const auto& [file, names] : tensors) {
    if (std::error_code ignored; !fs::exists(fs::path(folder) / file, ignored)) {
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format("{}/{}: is missing; {} names it as the file of {} tensor{}, \"{}\" first; "
                      "download or copy the model again",
                      folder,
                      file,
                      name,
                      names.size(),
                      names.size() == 1 ? "" : "s",
                      names.front()));
    }
    model.files.push_back(file);
  }
  return model;
}

}  // namespace unisono::checkpoint
