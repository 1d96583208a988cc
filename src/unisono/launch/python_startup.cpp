#include "unisono/launch/python_startup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/setting_checks.h"
#include "unisono/launch/process/spawn.h"

namespace unisono::launch {
namespace {

// Returns all text up to the end of the stream, or std::nullopt if the deadline passes, the text
// has 64 KiB or more, or a read fails.
std::optional<std::string> read_to_end(int fd, Deadline deadline) {
  constexpr std::size_t kMaxBytes = 65'536;
  std::string text;
  while (text.size() < kMaxBytes && !deadline.has_passed()) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, deadline.poll_timeout_ms()) <= 0) {
      continue;
    }
    std::array<char, 4096> part{};
    const ssize_t n_bytes = ::read(fd, part.data(), part.size());
    if (n_bytes == 0) {
      return text;
    }
    if (n_bytes < 0 && errno != EINTR) {
      return std::nullopt;
    }
    text.append(part.data(), n_bytes < 0 ? 0 : static_cast<std::size_t>(n_bytes));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> ask_python(const std::string& python,
                                      const std::string& code,
                                      Deadline deadline) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return std::nullopt;
  }
  const Fd answer(ends[0]);
  Fd childs_end(ends[1]);
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<std::string> arguments{python, "-c", code};
  const std::vector<char*> argv = pointers(arguments);
  const SpawnResult spawned = spawn({.path = python.c_str(),
                                     .argv = argv.data(),
                                     .environment = environ,
                                     .stdio = {null.get(), childs_end.get(), null.get()},
                                     .death_signal = SIGKILL},
                                    -1,
                                    deadline);
  childs_end.reset();
  if (spawned.pid < 0) {
    return std::nullopt;
  }
  const std::optional<std::string> text = read_to_end(answer.get(), deadline);
  // A process that has closed stdout cannot add to the answer.
  ::kill(spawned.pid, SIGKILL);
  while (::waitpid(spawned.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!text || text->empty()) {
    return std::nullopt;
  }
  return text->substr(text->rfind('\n') + 1);
}

namespace {

constexpr std::chrono::seconds kAnswerTimeout{10};

// Finds the package without an import. The empty entry is removed because a script does not search
// the folder where the script is started.
constexpr char kWhereIsThePackage[] =
    "import importlib.util, sys\n"
    "sys.path = [folder for folder in sys.path if folder]\n"
    "spec = importlib.util.find_spec('unisono')\n"
    "if spec and spec.origin: print(spec.submodule_search_locations[0], end='')\n";

bool is_startup_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder / "sitecustomize.py", ignored);
}

std::optional<std::filesystem::path> find_beside(const std::filesystem::path& program_folder) {
  const std::filesystem::path parent = program_folder.parent_path();
  const std::array places{parent / "_startup", parent / "python" / "unisono" / "_startup"};
  const auto* const found = std::find_if(places.begin(), places.end(), is_startup_folder);
  return found == places.end() ? std::nullopt : std::optional(*found);
}

std::optional<std::filesystem::path> find_in_package_of(const std::string& python) {
  if (python.empty()) {
    return std::nullopt;
  }
  const std::optional<std::string> package =
      ask_python(python, kWhereIsThePackage, Deadline::after(kAnswerTimeout));
  const auto folder = std::filesystem::path(package.value_or("")) / "_startup";
  return package && is_startup_folder(folder) ? std::optional(folder) : std::nullopt;
}

}  // namespace

std::filesystem::path find_startup_folder(const std::filesystem::path& program_folder,
                                          const std::string& python) {
  if (const auto folder = find_beside(program_folder)) {
    return *folder;
  }
  if (const auto folder = find_in_package_of(python)) {
    return *folder;
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("names of backends: the unisono in {} has no Python package beside it, "
                          "and {}; install the package for the Python that runs the program",
                          program_folder.string(),
                          python.empty() ? "there is no python3 in PATH"
                                         : python + " finds no module unisono"));
}

AliasVariables alias_variables(const std::string& alias, const std::string& python) {
  if (const auto problem = find_alias_problem(alias)) {
    throw Error(ErrorCode::kInvalidArgument, "names of backends: " + *problem);
  }
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return {.alias = alias,
          .startup_folder = find_startup_folder(program.parent_path(), python).string()};
}

}  // namespace unisono::launch
