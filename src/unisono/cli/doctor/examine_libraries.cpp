#include "unisono/cli/doctor/examine_libraries.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/system_files.h"

namespace unisono::cli::doctor {
namespace {

namespace fs = std::filesystem;

struct Library {
  const char* what;
  const char* file;  // Files that are named so, and so with ".VERSION" behind it.
};

constexpr std::array kLibraries{Library{"NCCL", "libnccl.so"},
                                Library{"MPI", "libmpi.so"},
                                Library{"MPICH", "libmpich.so"},
                                Library{"UCX", "libucp.so"}};

void add(std::vector<fs::path>& folders, const fs::path& folder) {
  if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end()) {
    folders.push_back(folder);
  }
}

// The files that an include of ld.so.conf names: as shells expand the last part of a path.
std::vector<fs::path> expand(const fs::path& pattern) {
  const std::string last = pattern.filename().string();
  const std::size_t star = last.find('*');
  if (star == std::string::npos) {
    return {pattern};
  }
  std::vector<fs::path> files;
  for (const std::string& name : names_in(pattern.parent_path())) {
    if (name.size() + 1 >= last.size() && name.starts_with(last.substr(0, star)) &&
        name.ends_with(last.substr(star + 1))) {
      files.push_back(pattern.parent_path() / name);
    }
  }
  return files;
}

// `depth` ends files that include each other.
void read_configuration(const fs::path& root,
                        const fs::path& file,
                        int depth,
                        std::vector<fs::path>& folders) {
  constexpr int kMaxDepth = 8;
  if (depth == kMaxDepth) {
    return;
  }
  std::istringstream lines(read_text(file).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first;
    std::string second;
    words >> first >> second;
    if (first == "include") {
      const fs::path pattern(second);
      const fs::path place =
          pattern.is_absolute() ? root / pattern.relative_path() : file.parent_path() / pattern;
      for (const fs::path& included : expand(place)) {
        read_configuration(root, included, depth + 1, folders);
      }
    } else if (first.starts_with('/')) {
      add(folders, first);
    }
  }
}

std::vector<fs::path> loader_folders(const Environment& environment, const fs::path& root) {
  std::vector<fs::path> folders;
  std::istringstream paths(environment("LD_LIBRARY_PATH").value_or(""));
  for (std::string path; std::getline(paths, path, ':');) {
    add(folders, path);
  }
  read_configuration(root, root / "etc/ld.so.conf", 0, folders);
  for (const char* const folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"}) {
    add(folders, folder);
  }
  return folders;
}

// The file itself, or the newest name with a version; "" if there is none.
std::string find_in(const fs::path& folder, std::string_view file) {
  std::string found;
  for (const std::string& name : names_in(folder)) {
    if (name == file || (name.starts_with(file) && name[file.size()] == '.')) {
      found = std::max(found, name);
    }
  }
  return found;
}

}  // namespace

Findings examine_libraries(const Environment& environment, const fs::path& root) {
  const std::vector<fs::path> folders = loader_folders(environment, root);
  std::string text;
  std::string missing;
  for (const Library& library : kLibraries) {
    std::string place;
    for (const fs::path& folder : folders) {
      const std::string name = find_in(root / folder.relative_path(), library.file);
      if (!name.empty()) {
        place = folder / name;
        break;
      }
    }
    if (place.empty()) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", library.what);
    } else {
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", library.what, place);
    }
  }
  if (!missing.empty()) {
    text += fmt::format("{}not found: {}", text.empty() ? "" : "; ", missing);
  }
  return {{.state = State::kInfo, .topic = "libraries", .text = text}};
}

}  // namespace unisono::cli::doctor
