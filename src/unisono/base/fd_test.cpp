#include "unisono/base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace unisono {
namespace {

// A connection with an end that no child shares.
struct Connection {
  Fd unshared;
  Fd other;
};

Connection connect() {
  std::array<int, 2> ends{-1, -1};
  Fd unshared = Fd::open_unshared([&] {
    return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0 ? ends[0] : -1;
  });
  EXPECT_TRUE(unshared.is_open());
  return {.unshared = std::move(unshared), .other = Fd(ends[1])};
}

bool can_send(int fd) {
  return ::send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

// A child that exists without exec during this object's lifetime.
class IdleChild {
 public:
  IdleChild() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) {
        ::pause();
      }
    }
    EXPECT_GT(pid_, 0);
  }

  ~IdleChild() {
    EXPECT_EQ(::kill(pid_, SIGKILL), 0);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
  }

  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;
  IdleChild(IdleChild&&) = delete;
  IdleChild& operator=(IdleChild&&) = delete;

 private:
  pid_t pid_;
};

// Returns the result of `body` in a child. `body` makes only async-signal-safe calls.
template <class Body>
int result_in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(body());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

bool hangs_up(const Fd& fd) {
  constexpr int kTimeoutMs = 10'000;
  pollfd end{.fd = fd.get(), .events = POLLIN, .revents = 0};
  char byte = 0;
  return ::poll(&end, 1, kTimeoutMs) == 1 && ::read(fd.get(), &byte, 1) == 0;
}

TEST(UnsharedFd, ItsEndIsSeenThoughAChildLives) {
  Connection connection = connect();
  const IdleChild child;
  EXPECT_TRUE(can_send(connection.unshared.get())) << "the parent keeps it";
  char byte = 0;
  EXPECT_EQ(::read(connection.other.get(), &byte, 1), 1);
  connection.unshared.reset();
  EXPECT_TRUE(hangs_up(connection.other));
}

TEST(UnsharedFd, InTheChildItsNumberIsTakenByWhatIsDead) {
  const Connection connection = connect();
  const int fd = connection.unshared.get();
  EXPECT_EQ(result_in_child([fd] {
              const bool is_taken = ::fcntl(fd, F_GETFD) == FD_CLOEXEC;
              return is_taken && !can_send(fd) ? 0 : 1;
            }),
            0);
}

TEST(UnsharedFd, StaysSoWhenItIsMoved) {
  Connection connection = connect();
  Fd moved = std::move(connection.unshared);
  Fd assigned;
  assigned = std::move(moved);
  const int fd = assigned.get();
  EXPECT_EQ(result_in_child([fd] { return can_send(fd) ? 1 : 0; }), 0);
  EXPECT_TRUE(can_send(fd));
}

TEST(UnsharedFd, WhatIsReleasedIsShared) {
  Connection connection = connect();
  const Fd released(connection.unshared.release());
  const int fd = released.get();
  EXPECT_EQ(result_in_child([fd] { return can_send(fd) ? 0 : 1; }), 0);
}

TEST(UnsharedFd, AfterItsEndTheNumberIsLikeAnyOther) {
  Connection connection = connect();
  const int number = connection.unshared.get();
  connection.unshared.reset();
  const Fd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ASSERT_EQ(file.get(), number);
  EXPECT_EQ(result_in_child([number] {
              struct stat status{};
              return ::fstat(number, &status) == 0 && S_ISCHR(status.st_mode) ? 0 : 1;
            }),
            0);
}

TEST(UnsharedFd, WhatCannotBeOpenedIsNotOpen) {
  const Fd fd = Fd::open_unshared([] { return ::open("/no/such/file", O_RDONLY | O_CLOEXEC); });
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(fd.is_open());
}

// Opens a socket of a kind that this process does not use elsewhere.
int open_marked() {
  return ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

int n_marked() {
  int n = 0;
  for (int fd = 0; fd < 64; ++fd) {
    int domain = 0;
    socklen_t size = sizeof(domain);
    n += ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_INET6 ? 1 : 0;
  }
  return n;
}

TEST(UnsharedFd, NoForkComesBetweenOpeningAndClosing) {
  std::atomic<bool> is_over = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!is_over) {
        Fd fd = Fd::open_unshared(open_marked);
        EXPECT_TRUE(fd.is_open());
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(result_in_child(n_marked), 0) << "fork " << i;
  }
  is_over = true;
}

}  // namespace
}  // namespace unisono
