#include "unisono/cli/bench_json_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "unisono/base/error.h"

namespace unisono::cli::bench {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const std::string& path, int error_number) {
  return system_error("bench: cannot write " + path, error_number);
}

// Where a file can't be renamed to.
bool is_special(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// What a link leads to, be it there or not, so that the link stays.
fs::path target_of(const std::string& path) {
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  if (!error) {
    return target;
  }
  const fs::path next = fs::read_symlink(path, error);
  return error ? fs::path(path) : fs::path(path).parent_path() / next;
}

// As the file has them that it takes the place of.
void copy_permissions(const fs::path& from, const std::string& to) {
  std::error_code ignored;
  if (const fs::file_status status = fs::status(from, ignored); fs::exists(status)) {
    fs::permissions(to, status.permissions(), ignored);
  }
}

// Beside `target`; no other process has it.
std::string temporary_name(const fs::path& target) {
  return fmt::format("{}.part-{}", target.string(), ::getpid());
}

// Throws for `path`, of which `file` is a part.
void write(const std::string& path, const std::string& file, const std::string& lines) {
  errno = 0;
  std::ofstream out(file);
  out << lines;
  out.close();
  if (!out) {
    const int error_number = errno;
    if (file != path) {
      (void)::unlink(file.c_str());
    }
    throw cannot_write(path, error_number);
  }
}

}  // namespace

void check_json_path(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0 && ::access(path.c_str(), W_OK) != 0) {
    throw cannot_write(path, errno);
  }
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    throw cannot_write(path, EISDIR);
  }
  if (is_special(path)) {
    return;
  }
  const std::string temporary = temporary_name(target_of(path));
  write(path, temporary, "");
  (void)::unlink(temporary.c_str());
}

void write_json(const std::string& path, const std::string& lines) {
  if (is_special(path)) {
    write(path, path, lines);
    return;
  }
  const fs::path target = target_of(path);
  const std::string temporary = temporary_name(target);
  write(path, temporary, "");
  copy_permissions(target, temporary);
  write(path, temporary, lines);
  if (std::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error_number = errno;
    (void)::unlink(temporary.c_str());
    throw cannot_write(path, error_number);
  }
}

}  // namespace unisono::cli::bench
