#include "processes/spawn.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

namespace unisono::test {
namespace {

// Returns whether the variable belongs to a job in which the tests may run.
bool belongs_to_a_job(std::string_view entry) {
  constexpr std::array<std::string_view, 19> kPrefixes{"RANK=",
                                                       "WORLD_SIZE=",
                                                       "MASTER_",
                                                       "LOCAL_",
                                                       "GROUP_",
                                                       "ROLE_",
                                                       "TORCHELASTIC_",
                                                       "OMPI_",
                                                       "PMI_",
                                                       "PMIX_",
                                                       "MPI_LOCAL",
                                                       "SLURM_",
                                                       "PET_",
                                                       "HOME=",
                                                       "UNISONO_SECRET",
                                                       "UNISONO_NODE_ID",
                                                       "UNISONO_LOG",
                                                       "UNISONO_TIMEOUT",
                                                       "UNISONO_STALL"};
  for (const std::string_view prefix : kPrefixes) {
    if (entry.starts_with(prefix)) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> make_environment(const Variables& variables) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (!belongs_to_a_job(text) && !variables.contains(name)) {
      entries.emplace_back(text);
    }
  }
  for (const auto& [name, value] : variables) {
    entries.push_back(name + "=" + value);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0) << std::strerror(errno);
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
  }

  Fd read_end;
  Fd write_end;
};

// Appends available output to `text`. Returns false at the end of the stream.
bool take_up(const Fd& fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t n_bytes = ::read(fd.get(), buffer.data(), buffer.size());
  if (n_bytes > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(n_bytes));
  }
  return n_bytes > 0;
}

}  // namespace

Processes::~Processes() {
  for (const auto& process : processes_) {
    if (!process->has_ended && process->pid > 0) {
      ::kill(process->pid, SIGKILL);
      ::waitpid(process->pid, nullptr, 0);
    }
  }
}

std::size_t Processes::start(std::vector<std::string> command, const Variables& variables) {
  std::vector<std::string> environment = make_environment(variables);
  Pipe in;
  Pipe out;
  Pipe err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end.get(), STDERR_FILENO);
  auto process = std::make_unique<Process>();
  const int error = ::posix_spawnp(&process->pid,
                                   command.front().c_str(),
                                   &actions,
                                   nullptr,
                                   pointers(command).data(),
                                   pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0) << command.front() << ": " << std::strerror(error);
  process->has_ended = error != 0;
  process->in = std::move(in.write_end);
  process->out = std::move(out.read_end);
  process->err = std::move(err.read_end);
  processes_.push_back(std::move(process));
  return processes_.size() - 1;
}

pid_t Processes::pid(std::size_t process) const {
  return processes_.at(process)->pid;
}

const std::string& Processes::output(std::size_t process) const {
  return processes_.at(process)->result.out;
}

void Processes::close_stdin(std::size_t process) {
  processes_.at(process)->in.reset();
}

void Processes::send_signal(std::size_t process, int signal) const {
  EXPECT_EQ(::kill(pid(process), signal), 0) << std::strerror(errno);
}

bool Processes::wait_for_output(std::size_t process, const std::string& text) {
  const ProcessResult& result = processes_.at(process)->result;
  const bool is_there = read_until(deadline_, [&] {
    return result.out.find(text) != std::string::npos || result.err.find(text) != std::string::npos;
  });
  EXPECT_TRUE(is_there) << "process " << process << " did not write \"" << text << "\"\n"
                        << describe();
  return is_there;
}

bool Processes::read_until(Deadline deadline, const std::function<bool()>& is_done) {
  while (!is_done()) {
    std::vector<pollfd> fds;
    std::vector<std::pair<Fd*, std::string*>> sinks;
    for (const auto& process : processes_) {
      for (auto& [fd, text] : {std::pair(&process->out, &process->result.out),
                               std::pair(&process->err, &process->result.err)}) {
        if (fd->is_open()) {
          fds.push_back({.fd = fd->get(), .events = POLLIN, .revents = 0});
          sinks.emplace_back(fd, text);
        }
      }
    }
    if (fds.empty() || deadline.has_passed()) {
      return false;
    }
    ::poll(fds.data(), fds.size(), deadline.poll_timeout_ms());
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0 && !take_up(*sinks[i].first, *sinks[i].second)) {
        sinks[i].first->reset();
      }
    }
  }
  return true;
}

void Processes::reap(Process& process, Deadline deadline) {
  if (process.has_ended) {
    return;
  }
  const Fd end(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  pollfd ended{.fd = end.get(), .events = POLLIN, .revents = 0};
  const bool is_in_time = ::poll(&ended, 1, deadline.poll_timeout_ms()) == 1;
  if (!is_in_time) {
    ::kill(process.pid, SIGKILL);
  }
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  process.has_ended = true;
  if (is_in_time) {
    process.result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

std::vector<ProcessResult> Processes::finish(std::chrono::nanoseconds timeout) {
  const Deadline deadline = earlier(deadline_, Deadline::after(timeout));
  (void)read_until(deadline, [] { return false; });
  bool is_in_time = true;
  std::vector<ProcessResult> results;
  for (const auto& process : processes_) {
    reap(*process, deadline);
    is_in_time = is_in_time && process->result.exit_code >= 0;
    results.push_back(process->result);
  }
  EXPECT_TRUE(is_in_time) << "not all processes ended in time\n" << describe();
  return results;
}

std::string Processes::describe() const {
  std::string text;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = *processes_[i];
    text += "--- process " + std::to_string(i) + " (pid " + std::to_string(process.pid) + "), " +
            (process.has_ended ? "exit code " + std::to_string(process.result.exit_code)
                               : std::string("running")) +
            "\n" + process.result.out + process.result.err;
  }
  return text;
}

ReservedPort::ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const pointer = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(socket_.get(), pointer, size), 0) << std::strerror(errno);
  EXPECT_EQ(::getsockname(socket_.get(), pointer, &size), 0) << std::strerror(errno);
  number_ = ntohs(address.sin_port);
}

void ReservedPort::listen() const {
  EXPECT_EQ(::listen(socket_.get(), 1), 0) << std::strerror(errno);
}

}  // namespace unisono::test
