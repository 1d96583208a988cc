#include "unisono/checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/base/log.h"
#include "unisono/checkpoint/json.h"

namespace unisono::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::size_t kLeastDigits = 8;
// Sufficient for a checkpoint of more than 10 TiB.
constexpr std::uint64_t kMostManifestBytes = std::uint64_t{1} << 27;
constexpr const char* kPartSuffix = ".part";
constexpr const char* kOldSuffix = ".old";
constexpr const char* kRemovedSuffix = ".removed";

std::string path_of(const std::string& root, std::int64_t step) {
  return root + "/" + checkpoint_name(step);
}

// Returns the name of the checkpoint from which a name with suffixes derives: such a folder is not
// a complete checkpoint. Returns std::nullopt for other names.
std::optional<std::string> leftover_of(std::string_view name) {
  const std::string_view whole = name;
  for (bool is_stripped = true; is_stripped;) {
    is_stripped = false;
    for (const std::string_view suffix : {kPartSuffix, kOldSuffix, kRemovedSuffix}) {
      if (name.ends_with(suffix)) {
        name.remove_suffix(suffix.size());
        is_stripped = true;
      }
    }
  }
  return name != whole && step_of(name) ? std::optional(std::string(name)) : std::nullopt;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory) {
    throw system_error(folder + ": can't read the folder of checkpoints", error.value());
  }
  return names;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Renames the folder before the removal: if the process is killed meanwhile, the remaining name
// does not count as a checkpoint.
void remove_checkpoint(const std::string& path) noexcept {
  std::error_code ignored;
  const std::string removed = path + kRemovedSuffix;
  fs::remove_all(removed, ignored);
  fs::rename(path, removed, ignored);
  fs::remove_all(removed, ignored);
}

void rename_to(const std::string& from, const std::string& path) {
  if (::rename(from.c_str(), path.c_str()) != 0) {
    throw system_error("save " + path + ": can't rename the checkpoint to its final name", errno);
  }
}

// For file systems that cannot exchange names: for a moment no checkpoint has the name. Readers
// then use the old checkpoint. If this writer dies, the next writer restores the old name: see
// find_checkpoint() and restore().
void replace(const std::string& root, const std::string& part, const std::string& path) {
  const std::string old = path + kOldSuffix;
  rename_to(path, old);
  try {
    rename_to(part, path);
  } catch (const Error&) {
    ::rename(old.c_str(), path.c_str());
    throw;
  }
  sync_folder(root);
  std::error_code ignored;
  fs::remove_all(old, ignored);
}

// Renames `part` to `path` and syncs the name to disk. An existing checkpoint with that name is
// exchanged, so that either checkpoint exists at every moment, and removed afterwards.
void give_name(const std::string& root, const std::string& part, const std::string& path) {
  if (::rename(part.c_str(), path.c_str()) == 0) {
    sync_folder(root);
    return;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) {
    throw system_error("save " + path + ": can't rename the checkpoint to its final name", errno);
  }
  if (::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
    replace(root, part, path);
    return;
  }
  sync_folder(root);
  std::error_code ignored;
  fs::remove_all(part, ignored);
}

// Restores the name of a checkpoint that a killed writer has not replaced completely.
void restore(const std::string& root, const std::string& name) {
  const std::string path = root + "/" + name;
  if (exists(path + kOldSuffix) && !exists(path)) {
    rename_to(path + kOldSuffix, path);
    sync_folder(root);
  }
}

// Creates the folder and all missing parents, and syncs their names to disk.
void make_folders(const std::string& folder) {
  std::vector<fs::path> parents;
  std::error_code error;
  for (fs::path path = fs::absolute(fs::path(folder) / "").parent_path();
       !fs::exists(path, error) && path.has_relative_path();
       path = path.parent_path()) {
    parents.push_back(path.parent_path());
  }
  fs::create_directories(folder, error);
  if (error) {
    throw system_error("save a checkpoint in " + folder + ": can't make the folder", error.value());
  }
  for (const fs::path& parent : parents) {
    sync_folder(parent);
  }
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:0{}}", kPrefix, step, kLeastDigits);
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + kLeastDigits) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kPrefix.size());
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0 ||
      checkpoint_name(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::optional<std::string> find_checkpoint(const std::string& root, std::int64_t step) {
  const std::string path = path_of(root, step);
  // Checks the original name twice: a writer may have given that name to the new checkpoint between
  // the other two checks.
  for (const std::string& place : {path, path + kOldSuffix, path}) {
    if (exists(place)) {
      return place;
    }
  }
  return std::nullopt;
}

std::vector<std::int64_t> list_steps(const std::string& root) {
  std::set<std::int64_t> steps;
  for (std::string_view name : names_in(root)) {
    if (name.ends_with(kOldSuffix)) {
      name.remove_suffix(std::string_view(kOldSuffix).size());
    }
    if (const std::optional<std::int64_t> step = step_of(name)) {
      steps.insert(*step);
    }
  }
  return {steps.begin(), steps.end()};
}

std::optional<Manifest> read_manifest(const std::string& checkpoint) {
  const std::string path = checkpoint + "/" + kManifestName;
  if (!exists(path)) {
    return std::nullopt;
  }
  return decode_manifest(read_text(path, kMostManifestBytes), path);
}

std::string part_folder(const std::string& root, std::int64_t step) {
  return path_of(root, step) + kPartSuffix;
}

void begin_checkpoint(const std::string& root, std::int64_t step) {
  make_folders(root);
  for (const std::string& name : names_in(root)) {
    if (const std::optional<std::string> whole = leftover_of(name)) {
      restore(root, *whole);
      std::error_code ignored;
      fs::remove_all(fs::path(root) / name, ignored);
    }
  }
  const std::string part = part_folder(root, step);
  std::error_code error;
  fs::create_directory(part, error);
  if (error) {
    throw system_error("save " + path_of(root, step) + ": can't make the folder " + part,
                       error.value());
  }
}

std::string commit_checkpoint(const std::string& root, std::int64_t step) {
  std::string path = path_of(root, step);
  // The file "latest" is written before any rename, so that a full disk is detected here.
  AtomicFile latest(root + "/" + kLatestName);
  const std::string name = checkpoint_name(step) + "\n";
  latest.write(std::as_bytes(std::span(name)));
  latest.flush();
  give_name(root, part_folder(root, step), path);
  latest.commit();
  return path;
}

void discard_checkpoint(const std::string& root, std::int64_t step) noexcept {
  std::error_code ignored;
  fs::remove_all(part_folder(root, step), ignored);
}

void remove_older_checkpoints(const std::string& root, std::int64_t newest, int n_kept) {
  std::vector<std::int64_t> steps;
  try {
    steps = list_steps(root);
  } catch (const Error& error) {
    base::Logger("checkpoint")
        .warning(std::string("older checkpoints were not deleted: ") + error.what());
  }
  steps.erase(std::upper_bound(steps.begin(), steps.end(), newest), steps.end());
  for (std::size_t i = 0; i + static_cast<std::size_t>(n_kept) < steps.size(); ++i) {
    remove_checkpoint(path_of(root, steps[i]));
  }
}

}  // namespace unisono::checkpoint
