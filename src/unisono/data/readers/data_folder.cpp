#include "unisono/data/readers/data_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/left_behind.h"

namespace unisono::data {

namespace fs = std::filesystem;

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

std::optional<std::string> find_plain_or_gzip(const fs::path& folder, const std::string& name) {
  for (const char* const suffix : {"", ".gz"}) {
    const fs::path path = folder / (name + suffix);
    std::error_code unreadable;
    if (fs::exists(path, unreadable)) {
      return path.string();
    }
  }
  return std::nullopt;
}

}  // namespace unisono::data
