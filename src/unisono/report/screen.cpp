#include "unisono/report/screen.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono::report {
namespace {

// A pipe that poll(2) reports as writable takes this much without blocking.
constexpr std::size_t kPieceBytes = 4096;
constexpr std::size_t kUsualColumns = 80;
constexpr std::chrono::seconds kPatience(1);
constexpr const char* kClearLine = "\r\033[K";

// Source: terminfo's name for a terminal without cursor control.
bool can_redraw(const Environment& environment) {
  return environment("TERM").value_or("dumb") != "dumb";
}

// Blocks SIGPIPE for this thread during the lifetime of the object, regardless of the program's
// handler.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    ::sigemptyset(&pending);
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }

  ~NoSigpipe() {
    const timespec none{};
    while (!was_pending_ && ::sigtimedwait(&sigpipe_, nullptr, &none) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  NoSigpipe(NoSigpipe&&) = delete;
  NoSigpipe& operator=(NoSigpipe&&) = delete;

 private:
  sigset_t sigpipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

// Opens a terminal anew with O_NONBLOCK, so that writes do not block and that flags and locks are
// not shared with other users of the descriptor. Duplicates the descriptor of other outputs, and of
// a terminal that may not be opened, as after su(1).
Fd open_output(int fd, bool is_terminal) {
  if (is_terminal) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    Fd terminal(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    if (terminal.is_open()) {
      return terminal;
    }
  }
  // A number above the three standard descriptors.
  return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

// Returns true if the descriptor is writable before the deadline passes.
bool is_ready(const Fd& output, const Deadline& deadline) {
  pollfd ready{output.get(), POLLOUT, 0};
  int n_ready = 0;
  do {
    n_ready = ::poll(&ready, 1, deadline.poll_timeout_ms());
  } while (n_ready < 0 && errno == EINTR);
  return n_ready == 1;
}

}  // namespace

Screen::Screen(int fd, bool wants_bar, base::Logger logger)
    : fd_(fd),
      output_(open_output(fd, ::isatty(fd) == 1)),
      logger_(std::move(logger)),
      is_terminal_(::isatty(fd) == 1 && can_redraw(process_environment())),
      has_colour_(is_terminal_ && process_environment()("NO_COLOR").value_or("").empty()) {
  has_bar_ = wants_bar && is_terminal_ &&
             (::flock(output_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
}

Screen::~Screen() {
  clear_bar();
}

std::size_t Screen::n_columns() const {
  winsize size{};
  const bool is_known =
      output_.is_open() && ::ioctl(output_.get(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  // The last column stays empty, because some terminals wrap after a character in the last column.
  return (is_known ? size.ws_col : kUsualColumns) - 1;
}

void Screen::draw_bar(std::string_view text) {
  if (has_bar_) {
    write(kClearLine + std::string(text), Patience::kNone);
    is_bar_drawn_ = true;
  }
}

void Screen::clear_bar() {
  if (std::exchange(is_bar_drawn_, false)) {
    write(kClearLine, Patience::kSome);
  }
}

void Screen::print(std::string_view line) {
  is_bar_drawn_ = false;
  write((is_terminal_ ? kClearLine : "") + std::string(line), Patience::kSome);
}

void Screen::write(std::string_view text, Patience patience) {
  if (!output_.is_open()) {
    return;
  }
  const NoSigpipe no_sigpipe;
  const bool waits = patience == Patience::kSome && !is_reader_slow_;
  const Deadline deadline = Deadline::after(waits ? kPatience : std::chrono::seconds(0));
  if (fd_ == STDOUT_FILENO && patience == Patience::kSome && is_ready(output_, deadline)) {
    // Keeps the order with earlier output of the program.
    (void)std::fflush(stdout);
  }
  const std::string all = (is_line_cut_ && !is_terminal_ ? "\n" : "") + std::string(text);
  std::string_view rest = all;
  while (!rest.empty() && is_ready(output_, deadline)) {
    const ssize_t n_written =
        ::write(output_.get(), rest.data(), std::min(rest.size(), kPieceBytes));
    if (n_written >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(n_written));
    } else if (errno != EINTR && errno != EAGAIN) {
      fail(errno);
      return;
    }
    if (n_written <= 0 && deadline.has_passed()) {
      break;
    }
  }
  if (patience == Patience::kSome) {
    is_reader_slow_ = !rest.empty();
  }
  if (rest.size() != all.size()) {
    is_line_cut_ = !rest.empty();
  }
}

void Screen::fail(int error_number) {
  output_.reset();
  has_bar_ = false;
  logger_.warning(
      system_error(fd_ == STDERR_FILENO ? "can't write to stderr" : "can't write to stdout",
                   error_number)
          .what() +
      std::string("; the training goes on, and its progress is not shown any more"));
}

}  // namespace unisono::report
