#include <fmt/format.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/loaded_mpi.h"
#include "unisono/net/io.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"

namespace unisono::rendezvous {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;

// Limit for replies that the launcher gives without waiting for other processes.
constexpr std::chrono::seconds kAnswerTimeout{5};

constexpr int kLeaveTimeoutMs = 2000;

constexpr const char* kPeer = "the launcher at PMI_FD";

bool is_stream(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

// Returns the value, or "" if missing.
std::string_view value_of(const PmiMessage& message, std::string_view name) {
  const auto found = message.find(name);
  return found == message.end() ? std::string_view() : std::string_view(found->second);
}

std::size_t read_limit(const PmiMessage& message, std::string_view name) {
  const std::string_view text = value_of(message, name);
  std::size_t limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (error != std::errc() || end != text.data() + text.size() || limit == 0) {
    throw Error(ErrorCode::kCorruptData, fmt::format("the launcher's {} is not a number", name));
  }
  return limit;
}

// Words end at spaces and lines at newlines. Launchers differ in the treatment of "=".
bool is_word(std::string_view text) {
  return !text.empty() && text.find_first_of(" \t\r\n=") == std::string_view::npos;
}

// Work left for process exit if an MPI library was expected to finalize PMI. The exit handler must
// not use objects that are already destroyed.
struct DueFinalize {
  int fd;
  pid_t process;
};

DueFinalize& due_finalize() {
  static DueFinalize instance{};
  return instance;
}

void send_finalize() {
  constexpr std::string_view kCommand = "cmd=finalize\n";
  const DueFinalize& due = due_finalize();
  if (::getpid() == due.process && mpi_state() == MpiState::kToCome) {
    (void)::send(due.fd, kCommand.data(), kCommand.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // A launcher that cannot write the reply reports a failure of the job.
    std::array<char, 256> answer{};
    pollfd wait{.fd = due.fd, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, kLeaveTimeoutMs) == 1) {
      (void)::recv(due.fd, answer.data(), answer.size(), MSG_DONTWAIT);
    }
  }
}

class PmiKeyValueSpace final : public KeyValueSpace {
 public:
  PmiKeyValueSpace(int fd, MpiState mpi, Deadline deadline);

  void put(const std::string& key, const std::string& text, Deadline deadline) override;
  bool fence(Deadline deadline) override;
  std::string get(const std::string& key, Deadline deadline) override;
  void leave() noexcept override;

 private:
  void send(const std::string& command, Deadline deadline);
  // Keeps the bytes of an incomplete reply if the deadline passes.
  std::string receive_line(Deadline deadline);
  PmiMessage receive(std::string_view expected, Deadline deadline);
  PmiMessage ask(const std::string& command, std::string_view expected, Deadline deadline);

  int fd_;
  MpiState mpi_;
  std::string received_;
  bool is_in_fence_ = false;
  std::string space_;  // The name of the job's key space.
  std::size_t max_key_bytes_ = 0;
  std::size_t max_text_bytes_ = 0;
};

PmiKeyValueSpace::PmiKeyValueSpace(int fd, MpiState mpi, Deadline deadline) : fd_(fd), mpi_(mpi) {
  if (!is_stream(fd)) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("PMI_FD={} is not an open connection here: a process between the launcher "
                    "and this one may have closed it",
                    fd));
  }
  if (mpi == MpiState::kFinished) {
    throw Error(ErrorCode::kNotFound, "MPI_Finalize has given PMI_FD back");
  }
  if (mpi != MpiState::kRunning) {
    (void)ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
  }
  const PmiMessage limits = ask("cmd=get_maxes", "maxes", deadline);
  max_key_bytes_ = read_limit(limits, "keylen_max");
  max_text_bytes_ = read_limit(limits, "vallen_max");
  space_ = value_of(ask("cmd=get_my_kvsname", "my_kvsname", deadline), "kvsname");
  if (space_.empty()) {
    throw Error(ErrorCode::kCorruptData, "the launcher gives the key space no name");
  }
}

void PmiKeyValueSpace::put(const std::string& key, const std::string& text, Deadline deadline) {
  UNISONO_CHECK(is_word(key) && is_word(text), "PMI takes words");
  // The limits include the terminating byte of a C string.
  if (key.size() >= max_key_bytes_ || text.size() >= max_text_bytes_) {
    throw Error(
        ErrorCode::kSystem,
        fmt::format("{} bytes under a key of {} are more than the launcher takes, {} and {}",
                    text.size(),
                    key.size(),
                    max_text_bytes_ - 1,
                    max_key_bytes_ - 1));
  }
  (void)ask(
      fmt::format("cmd=put kvsname={} key={} value={}", space_, key, text), "put_result", deadline);
}

bool PmiKeyValueSpace::fence(Deadline deadline) {
  if (!is_in_fence_) {
    send("cmd=barrier_in", deadline);
    is_in_fence_ = true;
  }
  if (!net::wait_for(fd_, POLLIN, deadline)) {
    return false;
  }
  (void)receive("barrier_out", Deadline::after(kAnswerTimeout));
  is_in_fence_ = false;
  return true;
}

std::string PmiKeyValueSpace::get(const std::string& key, Deadline deadline) {
  return std::string(value_of(
      ask(fmt::format("cmd=get kvsname={} key={}", space_, key), "get_result", deadline), "value"));
}

void PmiKeyValueSpace::leave() noexcept {
  try {
    if (mpi_ == MpiState::kNone) {
      (void)ask("cmd=finalize", "finalize_ack", Deadline::after(kAnswerTimeout));
    } else if (mpi_ == MpiState::kToCome) {
      due_finalize() = {.fd = fd_, .process = ::getpid()};
      std::atexit(send_finalize);
    }
  } catch (const std::exception&) {
    return;  // The launcher is gone, so this process will end too.
  }
}

void PmiKeyValueSpace::send(const std::string& command, Deadline deadline) {
  const std::string line = command + '\n';
  net::write_all(fd_, std::as_bytes(std::span(line)), deadline, kPeer);
}

std::string PmiKeyValueSpace::receive_line(Deadline deadline) {
  while (received_.find('\n') == std::string::npos) {
    if (received_.size() > kMaxLineBytes) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("the launcher's answer has more than {} bytes", kMaxLineBytes));
    }
    std::array<char, 1024> bytes{};
    const std::size_t n =
        net::read_at_least_one(fd_, std::as_writable_bytes(std::span(bytes)), deadline, kPeer);
    received_.append(bytes.data(), n);
  }
  const std::size_t end = received_.find('\n');
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

// Error messages never contain a whole reply, which may contain a secret.
PmiMessage PmiKeyValueSpace::receive(std::string_view expected, Deadline deadline) {
  const std::optional<PmiMessage> answer = parse_pmi(receive_line(deadline));
  if (!answer || value_of(*answer, "cmd") != expected || !received_.empty()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("the launcher's answer at PMI_FD is not the {} of PMI-1", expected));
  }
  const std::string_view code = value_of(*answer, "rc");
  if (!code.empty() && code != "0") {
    throw Error(ErrorCode::kSystem,
                fmt::format("the launcher's {} at PMI_FD reports rc={} {}",
                            expected,
                            code,
                            value_of(*answer, "msg")));
  }
  return *answer;
}

PmiMessage PmiKeyValueSpace::ask(const std::string& command,
                                 std::string_view expected,
                                 Deadline deadline) {
  send(command, deadline);
  return receive(expected, deadline);
}

}  // namespace

std::optional<PmiMessage> parse_pmi(std::string_view line) {
  PmiMessage message;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (word.empty()) {
      continue;
    }
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0 ||
        !message.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      return std::nullopt;
    }
  }
  return message.contains("cmd") ? std::optional(message) : std::nullopt;
}

std::unique_ptr<KeyValueSpace> open_pmi(int fd, MpiState mpi, Deadline deadline) {
  return std::make_unique<PmiKeyValueSpace>(fd, mpi, deadline);
}

}  // namespace unisono::rendezvous
