#include "unisono/launch/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "unisono/base/text.h"

namespace unisono::launch {
namespace {

constexpr int kNotFoundCode = 127;
constexpr int kNotExecutableCode = 126;

std::string errno_text(int error_number) {
  return fmt::format("{} (errno {})", std::generic_category().message(error_number), error_number);
}

// Returns 0, or the errno for which the file cannot be used.
int check_file(const std::string& path, int mode) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    return errno;
  }
  if (S_ISDIR(status.st_mode)) {
    return EISDIR;
  }
  return ::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0 ? 0 : errno;
}

// Returns "; did you mean bin/train?" with the most similar file name of the same folder, or an
// empty text if no name is similar.
std::string suggest_file(const std::string& path) {
  const std::filesystem::path wanted(path);
  const std::string name = wanted.filename();
  std::size_t least = name.size() / 3 + 1;
  std::string nearest;
  std::error_code error;
  const std::filesystem::path folder = wanted.has_parent_path() ? wanted.parent_path() : ".";
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string other = entry->path().filename();
    if (const std::size_t distance = edit_distance(name, other); distance < least) {
      least = distance;
      nearest = other;
    }
  }
  return nearest.empty()
             ? ""
             : fmt::format("; did you mean {}?", wanted.parent_path().append(nearest).string());
}

ProgramError missing_error(const std::string& path, int error_number) {
  return {fmt::format("cannot start {}: {}{}", path, errno_text(error_number), suggest_file(path)),
          kNotFoundCode};
}

ProgramError path_error(const std::string& path, int error_number) {
  if (error_number == EACCES) {
    return {fmt::format("cannot start {}: {}; is it meant to be a program? then: chmod +x {}",
                        path,
                        errno_text(error_number),
                        path),
            kNotExecutableCode};
  }
  if (error_number == ENOENT || error_number == ENOTDIR) {
    return missing_error(path, error_number);
  }
  return {fmt::format("cannot start {}: {}", path, errno_text(error_number)), kNotExecutableCode};
}

std::string search(const std::string& name, const Environment& environment, const char* why) {
  const std::string path = environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  std::string unusable;
  for (std::string_view rest = path;;) {
    const std::size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    const int error_number = check_file(candidate, X_OK);
    if (error_number == 0) {
      return candidate;
    }
    if (error_number == EACCES && unusable.empty()) {
      unusable = candidate;
    }
    if (colon == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(colon + 1);
  }
  if (!unusable.empty()) {
    throw path_error(unusable, EACCES);
  }
  std::string message = fmt::format("cannot start {}{}: not found in PATH={}", name, why, path);
  if (check_file("./" + name, F_OK) == 0) {
    message += fmt::format("; there is one in this folder: write ./{}", name);
  }
  throw ProgramError(message, kNotFoundCode);
}

// Returns the Python that has installed `program` as part of a package, or an empty text for a
// program that is not in a package (installed by CMake). PREFIX/bin/python3.11 has the package in
// PREFIX/lib/python3.11/site-packages/unisono, and the program in the package's folder bin.
std::string python_with_package(const std::filesystem::path& program) {
  const std::filesystem::path folder = program.parent_path();
  const std::filesystem::path package = folder.parent_path();
  const std::filesystem::path library = package.parent_path().parent_path();
  const std::string name = library.filename();
  if (folder.filename() != "bin" || package.filename() != "unisono" ||
      !name.starts_with("python3")) {
    return "";
  }
  const std::string python = library.parent_path().parent_path() / "bin" / name;
  return check_file(python, X_OK) == 0 ? python : "";
}

// Returns PYTHON_EXEC, as torchrun does; without that variable the Python of the launcher's
// package, otherwise python3 in PATH.
std::string find_python(const std::string& launcher, const Environment& environment) {
  std::string python = environment("PYTHON_EXEC").value_or("");
  if (python.empty()) {
    const std::string of_package = python_with_package(launcher);
    return of_package.empty() ? search("python3", environment, ", which runs Python programs")
                              : of_package;
  }
  constexpr const char* kWhy = " (PYTHON_EXEC), which runs Python programs";
  if (python.find('/') == std::string::npos) {
    return search(python, environment, kWhy);
  }
  const int error_number = check_file(python, X_OK);
  if (error_number != 0) {
    throw ProgramError(fmt::format("cannot start {}{}: {}", python, kWhy, errno_text(error_number)),
                       error_number == ENOENT ? kNotFoundCode : kNotExecutableCode);
  }
  return python;
}

// Returns the spelling that the script uses: "--local-rank" for PyTorch 2, "--local_rank" for older
// scripts.
std::string find_local_rank_option(const std::string& path) {
  std::ostringstream text;
  // Text that is read from a pipe would be missing from the program.
  if (std::error_code error; std::filesystem::is_regular_file(path, error)) {
    text << std::ifstream(path).rdbuf();
  }
  const bool has_hyphen = text.str().find("--local-rank") != std::string::npos;
  const bool has_underscore = text.str().find("--local_rank") != std::string::npos;
  return has_hyphen && !has_underscore ? "--local-rank" : "--local_rank";
}

bool is_python_file(const std::string& name) {
  return name.ends_with(".py");
}

bool is_pythons_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1).starts_with("python");
}

// Returns the interpreter of a script with its arguments, the text after "#!"; empty for other
// files.
std::string first_line_of_script(const std::string& path) {
  std::ifstream file(path);
  std::string line(128, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(std::min(line.find('\n'), static_cast<std::size_t>(file.gcount())));
  return line.starts_with("#!") ? line.substr(2) : "";
}

}  // namespace

Program find_program(const ProgramRequest& request, const Environment& environment) {
  const std::string& name = request.argv.front();
  if (name.empty()) {
    throw ProgramError("cannot start a program whose name is empty", kNotFoundCode);
  }
  if (request.is_module || request.is_python_file || (is_python_file(name) && !request.no_python)) {
    if (!request.is_module) {
      const int error_number = check_file(name, R_OK);
      if (error_number == ENOENT) {
        throw missing_error(name, error_number);
      }
      if (error_number != 0) {
        throw ProgramError(fmt::format("cannot start {}: {}", name, errno_text(error_number)),
                           kNotExecutableCode);
      }
    }
    Program program{
        .path = find_python(request.launcher, environment), .argv = {}, .is_python = true};
    // The whole path: Python finds a virtual environment by the name of the call.
    program.argv = {program.path, "-u"};
    if (request.is_module) {
      program.argv.emplace_back("-m");
    } else if (request.takes_local_rank) {
      program.local_rank_option = find_local_rank_option(name);
    }
    program.local_rank_at = request.takes_local_rank ? program.argv.size() + 1 : 0;
    program.argv.insert(program.argv.end(), request.argv.begin(), request.argv.end());
    return program;
  }
  Program program{.path = name,
                  .argv = request.argv,
                  .local_rank_at = request.takes_local_rank ? std::size_t{1} : 0};
  if (name.find('/') == std::string::npos) {
    program.path = search(name, environment, "");
    return program;
  }
  const int error_number = check_file(name, X_OK);
  if (error_number != 0) {
    throw path_error(name, error_number);
  }
  return program;
}

bool is_python(const Program& program) {
  return program.is_python || is_pythons_name(program.path) ||
         first_line_of_script(program.path).find("python") != std::string::npos;
}

std::string python_of(const Program& program, const Environment& environment) {
  if (program.is_python || is_pythons_name(program.path)) {
    return program.path;
  }
  std::string python = "python3";
  std::istringstream words(first_line_of_script(program.path));
  for (std::string word; words >> word;) {
    if (is_pythons_name(word)) {
      python = word;
      break;
    }
  }
  try {
    return python.find('/') == std::string::npos ? search(python, environment, "") : python;
  } catch (const ProgramError&) {
    return "";
  }
}

ProgramError exec_error(const Program& program, int error_number) {
  const char* hint = "";
  if (error_number == ENOEXEC) {
    hint = "; a script needs a first line such as #!/bin/sh";
  } else if (error_number == ENOENT) {
    hint = "; the file is there, but not the interpreter that its first line or header names";
  } else if (error_number == E2BIG) {
    hint = "; its arguments and environment are too long together";
  } else if (error_number == ETIMEDOUT) {
    hint = "; its file system does not answer";
  }
  return {fmt::format("cannot start {}: {}{}", program.path, errno_text(error_number), hint),
          error_number == ENOENT ? kNotFoundCode : kNotExecutableCode};
}

}  // namespace unisono::launch
