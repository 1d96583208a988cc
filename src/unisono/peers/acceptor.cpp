#include "unisono/peers/acceptor.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/peers/control_plane.h"
#include "unisono/transport/dial.h"

namespace unisono::peers {
namespace {

// Time for a handshake.
constexpr std::chrono::seconds kHelloTimeout{10};

constexpr std::chrono::milliseconds kPause{100};

// Pause of the loop's thread.
constexpr std::chrono::milliseconds kBriefPause{20};

// A process without descriptors retries sooner.
constexpr std::chrono::seconds kLongestGap{1};

}  // namespace

FileReserve::FileReserve() {
  (void)refill();
}

bool FileReserve::note_lack(Time now) {
  if (now - last_ > kLongestGap) {
    since_ = now;
  }
  last_ = now;
  if (!file_.is_open() || now - since_ < kFilePatience) {
    return false;
  }
  file_.reset();
  return true;
}

bool FileReserve::refill() {
  if (!file_.is_open()) {
    file_ = Fd(::eventfd(0, EFD_CLOEXEC));
  }
  return file_.is_open();
}

Acceptor::Acceptor(net::EventLoop& loop,
                   int listener,
                   net::HelloInfo mine,
                   std::string secret,
                   int world_size,
                   base::Logger logger,
                   Deliver deliver)
    : loop_(loop),
      listener_(listener),
      mine_(std::move(mine)),
      secret_(std::move(secret)),
      world_size_(world_size),
      logger_(std::move(logger)),
      deliver_(std::move(deliver)) {
  loop_.add(listener_, EPOLLIN, [this](std::uint32_t) { survive([this] { accept_all(); }); });
}

// An exception, for example for lack of memory, ends a connection but not the rank.
template <class Step>
void Acceptor::survive(Step step) noexcept {
  try {
    step();
  } catch (const std::exception& problem) {
    warn(problem.what());
    // The listener may still be ready, and the loop would spin.
    std::this_thread::sleep_for(kBriefPause);
  }
}

void Acceptor::warn(const char* problem) noexcept {
  try {
    logger_.warning(fmt::format("lost a connection at the data port: {}", problem));
  } catch (const std::exception&) {
    return;  // Out of memory for the warning as well.
  }
}

void Acceptor::accept_all() {
  while (true) {
    if (unauthenticated_.is_full() && !make_room()) {
      pause("too many connections have not finished their hello");
      return;
    }
    net::Accepted accepted = net::accept_connection(listener_);
    if (accepted.error_number != 0) {
      if (make_room() || reserve_.note_lack(Deadline::Clock::now())) {
        continue;
      }
      pause(descriptor_error("accepting it", accepted.error_number).what());
      return;
    }
    if (!accepted.fd.is_open()) {
      return;
    }
    admit(std::move(accepted.fd));
  }
}

// Closes overdue connections. Returns whether there is room.
bool Acceptor::make_room() {
  while (const std::optional<std::uint64_t> oldest =
             unauthenticated_.overdue(Deadline::Clock::now())) {
    const int fd = static_cast<int>(*oldest);
    attend(fd);  // The loop may not have read its last bytes yet.
    const bool is_overdue = unauthenticated_.overdue(Deadline::Clock::now()) == oldest;
    if (pending_.contains(fd) && is_overdue) {
      drop(fd, "it did not finish its hello, and other connections wait");
    }
    if (!pending_.contains(fd)) {
      return true;
    }
  }
  return false;
}

// Stops polling the listener, which would be ready all the time, so that the loop does not spin.
void Acceptor::pause(const std::string& reason) {
  (void)loop_.add_timer(earlier(Deadline::after(kPause), Deadline::at(unauthenticated_.next_due())),
                        [this] { loop_.modify(listener_, EPOLLIN); });
  loop_.modify(listener_, 0);
  logger_.warning(fmt::format("the data port can't take a connection: {}; trying again", reason));
}

void Acceptor::admit(Fd socket) {
  const int fd = socket.get();
  std::string name = net::describe_peer(fd);
  const auto pending =
      pending_
          .emplace(fd,
                   PendingConnection{.socket = std::move(socket),
                                     .name = std::move(name),
                                     .hello = net::Hello(net::Hello::Side::kServer, secret_, mine_),
                                     .timer = 0})
          .first;
  try {
    unauthenticated_.add(static_cast<std::uint64_t>(fd), Deadline::Clock::now());
    pending->second.timer = loop_.add_timer(Deadline::after(kHelloTimeout), [this, fd] {
      survive([&] { drop(fd, "it did not finish its hello"); });
    });
    loop_.add(fd, EPOLLIN, [this, fd](std::uint32_t) { survive([&] { attend(fd); }); });
  } catch (...) {
    release(fd);
    throw;
  }
}

// A connection that is already being delivered is no longer pending; after an exception it closes.
void Acceptor::attend(int fd) {
  try {
    greet(fd);
  } catch (...) {
    if (pending_.contains(fd)) {
      forget(fd);
    }
    throw;
  }
}

void Acceptor::greet(int fd) {
  PendingConnection& pending = pending_.at(fd);
  while (pending.hello.state() == net::Hello::State::kRunning) {
    // Reads only the hello: later bytes are for the rank's own thread.
    std::array<std::byte, 1024> buffer{};
    const std::size_t n_wanted = std::min(buffer.size(), pending.hello.n_bytes_wanted());
    const net::IoResult result = net::read_some(fd, std::span(buffer).first(n_wanted));
    if (result.status == net::IoStatus::kWouldBlock) {
      return;
    }
    if (result.status != net::IoStatus::kDone && !pending.has_spoken) {
      forget(fd);  // A probe of whether this rank listens.
      return;
    }
    if (result.status != net::IoStatus::kDone) {
      drop(fd, "it ended the connection during its hello");
      return;
    }
    pending.has_spoken = true;
    unauthenticated_.note_word(static_cast<std::uint64_t>(fd));
    (void)pending.hello.feed(std::span(buffer).first(result.n_bytes));
    // Replies of a hello fit into the buffer of any socket.
    const std::vector<std::byte> output = pending.hello.take_output();
    if (!output.empty() && net::write_some(fd, output).n_bytes != output.size()) {
      drop(fd, "it does not read the answer to its hello");
      return;
    }
  }
  finish(fd);
}

void Acceptor::finish(int fd) {
  PendingConnection& pending = pending_.at(fd);
  if (pending.hello.state() == net::Hello::State::kFailed) {
    drop(fd, pending.hello.error().what());
    return;
  }
  const net::HelloInfo& theirs = pending.hello.theirs();
  if (!is_member(theirs)) {
    drop(fd,
         fmt::format("it is rank {} of job \"{}\", here for \"{}\"",
                     theirs.rank,
                     theirs.job,
                     theirs.purpose));
    return;
  }
  const net::HelloInfo member = theirs;
  logger_.debug(fmt::format(
      "rank {} at {} has opened a connection for {}", member.rank, pending.name, member.purpose));
  Fd socket = std::move(pending.socket);
  forget(fd);
  // The connection may use the last descriptor.
  std::optional<Error> shortage;
  if (!reserve_.refill()) {
    shortage = descriptor_error("opening another file", errno);
  }
  deliver_(member, std::move(socket), shortage);
  (void)reserve_.refill();
}

bool Acceptor::is_member(const net::HelloInfo& theirs) const {
  if (theirs.job != mine_.job || theirs.rank < 0 || theirs.rank >= world_size_) {
    return false;
  }
  const bool is_known = theirs.purpose == transport::kDataPurpose ||
                        theirs.purpose == transport::kMessagePurpose ||
                        theirs.purpose == kControlPurpose;
  return is_known && theirs.rank != mine_.rank;
}

void Acceptor::drop(int fd, const std::string& reason) {
  const std::string name = std::move(pending_.at(fd).name);
  forget(fd);
  logger_.warning(fmt::format("rejected {} at the data port: {}", name, reason));
}

void Acceptor::forget(int fd) {
  loop_.remove(fd);
  release(fd);
}

void Acceptor::release(int fd) {
  const auto pending = pending_.find(fd);
  loop_.cancel_timer(pending->second.timer);
  pending_.erase(pending);
  unauthenticated_.remove(static_cast<std::uint64_t>(fd));
  (void)reserve_.refill();
}

}  // namespace unisono::peers
