#include "unisono/launch/ask_python.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/process/spawn.h"

namespace unisono::launch {
namespace {

// To its end; nothing where that does not come in time, or is too long for an answer.
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
  // Who has closed stdout has said all.
  ::kill(spawned.pid, SIGKILL);
  while (::waitpid(spawned.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!text || text->empty()) {
    return std::nullopt;
  }
  return text->substr(text->rfind('\n') + 1);
}

}  // namespace unisono::launch
