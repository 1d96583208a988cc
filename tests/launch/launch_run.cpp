#include "launch_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include <gtest/gtest.h>

#include "unisono/base/text.h"
#include "unisono/launch/environment.h"

#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::read_file;

constexpr std::chrono::seconds kRunTimeout{50};

Fd open_pidfd(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> make_environment(const RunSetup& setup, const std::string& mark) {
  std::vector<std::string> overrides = setup.environment;
  overrides.push_back(mark);
  std::vector<std::string> entries = launch::merge_environment(environ, overrides);
  std::erase_if(entries,
                [](const std::string& entry) { return entry.find('=') == std::string::npos; });
  return entries;
}

// Returns the descriptor for the launcher's output. Creates a pipe if the test collects that
// output.
int output_end(int wanted_fd, Fd& read_end, Fd& write_end) {
  if (wanted_fd >= 0) {
    return wanted_fd;
  }
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  read_end = Fd(ends[0]);
  write_end = Fd(ends[1]);
  return write_end.get();
}

bool is_zombie(const std::filesystem::path& process) {
  const std::string stat = read_file(process / "stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.substr(name_end + 2, 1) == "Z";
}

}  // namespace

LaunchRun::LaunchRun(const RunSetup& setup)
    : mark_("UNISONO_TEST_MARK=" + random_hex(8)), deadline_(Deadline::after(kRunTimeout)) {
  std::vector<std::string> arguments{setup.program};
  arguments.insert(arguments.end(), setup.arguments.begin(), setup.arguments.end());
  std::vector<std::string> environment = make_environment(setup, mark_);
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  Fd out_end;
  Fd err_end;
  const int out_fd = output_end(setup.stdout_fd, out_, out_end);
  const int err_fd = output_end(setup.stderr_fd, err_, err_end);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (setup.terminal.empty()) {
    posix_spawn_file_actions_adddup2(
        &actions, setup.stdin_fd >= 0 ? setup.stdin_fd : null.get(), STDIN_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, setup.terminal.c_str(), O_RDWR, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err_fd, STDERR_FILENO);
  if (setup.close_stdout) {
    posix_spawn_file_actions_addclose(&actions, STDOUT_FILENO);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const bool begins_session = setup.own_session || !setup.terminal.empty();
  posix_spawnattr_setflags(&attributes, begins_session ? POSIX_SPAWN_SETSID : 0);
  const int error = ::posix_spawn(&pid_,
                                  setup.program.c_str(),
                                  &actions,
                                  &attributes,
                                  pointers(arguments).data(),
                                  pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0);
}

LaunchRun::~LaunchRun() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const pid_t pid : marked()) {
    ::kill(pid, SIGKILL);
  }
}

void LaunchRun::read_until(const std::function<bool()>& is_done) {
  std::array<char, 65536> buffer;
  while (!is_done() && !deadline_.has_passed()) {
    std::array<pollfd, 2> fds{{{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), deadline_.poll_timeout_ms());
    for (const pollfd& ready : fds) {
      if (ready.revents == 0) {
        continue;
      }
      const bool is_out = ready.fd == out_.get();
      const ssize_t n_bytes = ::read(ready.fd, buffer.data(), buffer.size());
      if (n_bytes > 0) {
        (is_out ? result_.out : result_.err).append(buffer.data(), static_cast<size_t>(n_bytes));
      } else {
        (is_out ? out_ : err_).reset();
      }
    }
    if (!out_.is_open() && !err_.is_open()) {
      return;
    }
  }
}

void LaunchRun::wait_for_output(const std::string& text, int n_times) {
  read_until([&] { return count(result_.out, text) >= n_times; });
  EXPECT_GE(count(result_.out, text), n_times) << result_.out << result_.err;
}

void LaunchRun::wait_for_error(const std::string& text) {
  read_until([&] { return count(result_.err, text) > 0; });
  EXPECT_GT(count(result_.err, text), 0) << result_.out << result_.err;
}

RunResult LaunchRun::finish() {
  read_until([] { return false; });
  const Fd end = open_pidfd(pid_);
  pollfd ended{end.get(), POLLIN, 0};
  if (::poll(&ended, 1, deadline_.poll_timeout_ms()) != 1) {
    ADD_FAILURE() << "the launcher does not end\n" << result_.out << result_.err;
    return result_;
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result_;
}

std::vector<pid_t> LaunchRun::marked() const {
  std::vector<pid_t> pids;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    const std::string name = process.path().filename();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) {
      continue;
    }
    if (read_file(process.path() / "environ").find(mark_) != std::string::npos &&
        !is_zombie(process.path())) {
      pids.push_back(pid);
    }
  }
  return pids;
}

std::vector<pid_t> LaunchRun::wait_until_all_gone() const {
  for (;;) {
    std::vector<pid_t> left = marked();
    if (left.empty() || deadline_.has_passed()) {
      return left;
    }
    const Fd end = open_pidfd(left.front());
    pollfd ended{end.get(), POLLIN, 0};
    ::poll(&ended, 1, end.is_open() ? deadline_.poll_timeout_ms() : 0);
  }
}

std::vector<pid_t> LaunchRun::guardians() const {
  std::vector<pid_t> pids = marked();
  std::erase_if(pids, [](pid_t pid) {
    return read_file("/proc/" + std::to_string(pid) + "/comm") != "unisono-guard\n";
  });
  return pids;
}

pid_t LaunchRun::guardian() const {
  const std::vector<pid_t> pids = guardians();
  if (pids.size() != 1) {
    // A default pid is not safe: kill(-1) ends every process of the machine.
    throw std::runtime_error(std::to_string(pids.size()) + " guardians found, not one");
  }
  return pids.front();
}

RunResult run_to_end(const RunSetup& setup) {
  LaunchRun run(setup);
  const RunResult result = run.finish();
  // No wait is needed: the launcher ends after all processes that it started.
  EXPECT_TRUE(run.marked().empty());
  return result;
}

std::vector<std::string> probe(std::vector<std::string> options,
                               const std::vector<std::string>& probe_arguments) {
  options.insert(options.begin(), "run");
  options.emplace_back(UNISONO_PROBE);
  options.insert(options.end(), probe_arguments.begin(), probe_arguments.end());
  return options;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

int count(const std::string& text, const std::string& part) {
  int n_found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++n_found;
  }
  return n_found;
}

}  // namespace unisono::launch_test
