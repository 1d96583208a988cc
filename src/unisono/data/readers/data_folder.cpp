#include "unisono/data/readers/data_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/left_behind.h"

namespace unisono::data {

namespace fs = std::filesystem;

namespace {

// What is there under one of the names, and is no folder.
std::optional<fs::path> find_file(const fs::path& folder, const Spellings& spellings) {
  for (const std::string& spelling : spellings) {
    for (const char* const suffix : {"", ".gz"}) {
      fs::path path = folder / (spelling + suffix);
      std::error_code unreadable;
      if (fs::exists(path, unreadable) && !fs::is_directory(path, unreadable)) {
        return path;
      }
    }
  }
  return std::nullopt;
}

std::optional<fs::path> find_file_or_inner(const fs::path& folder, const Spellings& spellings) {
  std::optional<fs::path> path = find_file(folder, spellings);
  for (const std::string& spelling : spellings) {
    for (const char* const suffix : {"", ".gz"}) {
      path = path ? path : find_file(folder / (spelling + suffix), spellings);
    }
  }
  return path;
}

FoundFiles files_in(const fs::path& folder, const std::vector<Spellings>& files) {
  FoundFiles found;
  for (const Spellings& spellings : files) {
    if (const std::optional<fs::path> path = find_file_or_inner(folder, spellings)) {
      found.paths.push_back(path->string());
    } else {
      found.missing.push_back(spellings.front());
    }
  }
  return found;
}

}  // namespace

void check_data_folder(const std::string& folder, const std::string& hint) {
  std::error_code reason;
  const fs::file_status status = fs::status(folder, reason);
  if (status.type() == fs::file_type::not_found) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{}\": there is no such folder; {}", folder, hint));
  }
  if (reason) {
    throw system_error(fmt::format("data folder \"{}\": can't look into it", folder),
                       reason.value());
  }
  if (status.type() != fs::file_type::directory) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("data folder \"{}\": is not a folder; {}", folder, hint));
  }
}

FolderEntries list_folder(const fs::path& root, const std::string& below, LeftOut& left_out) {
  const fs::path folder = below.empty() ? root : root / below;
  FolderEntries entries;
  std::error_code reason;
  fs::directory_iterator place(folder, reason);
  while (!reason && place != fs::directory_iterator()) {
    std::string name = place->path().filename().string();
    std::error_code dangling;
    if (is_left_behind(name)) {
      left_out.add((fs::path(below) / name).string());
    } else {
      (place->is_directory(dangling) ? entries.folders : entries.others).push_back(std::move(name));
    }
    place.increment(reason);
  }
  if (reason) {
    throw system_error(fmt::format("data folder \"{}\": can't list its files", folder.string()),
                       reason.value());
  }
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.others);
  return entries;
}

FoundFiles find_data_files(const fs::path& folder,
                           const std::string& usual,
                           const std::vector<Spellings>& files) {
  FoundFiles best = files_in(folder, files);
  const auto take = [&](const fs::path& place) {
    FoundFiles found = files_in(place, files);
    const bool is_whole = found.missing.empty();
    if (found.paths.size() > best.paths.size()) {
      best = std::move(found);
    }
    return is_whole;
  };
  if (best.missing.empty() || take(folder / usual)) {
    return best;
  }
  LeftOut not_reported;
  std::vector<std::string> whole;
  for (const std::string& name : list_folder(folder, "", not_reported).folders) {
    if (take(folder / name)) {
      whole.push_back(name);
    }
  }
  if (whole.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("data folder \"{}\": {} is in each of its folders {}; give one of them",
                            folder.string(),
                            files.front().front(),
                            fmt::join(whole, ", ")));
  }
  return best;
}

}  // namespace unisono::data
