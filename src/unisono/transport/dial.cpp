#include "unisono/transport/dial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <system_error>

#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::transport {

void check_answer(const RankAddress& rank, const net::HelloInfo& theirs, const std::string& job) {
  if (theirs.rank != rank.job_rank || theirs.job != job) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("{} answered as rank {} of job {}, not as {} of job {}",
                            rank.address.to_string(),
                            theirs.rank,
                            theirs.job,
                            rank.name,
                            job));
  }
}

Error nobody_listens(const RankAddress& rank) {
  return {ErrorCode::kPeerLost,
          fmt::format("{} has left the group, or is gone: no process listens at {} any more",
                      rank.name,
                      rank.address.to_string())};
}

RankAddress address_of(const Member& member) {
  return {.job_rank = member.job_rank, .address = member.address, .name = describe(member)};
}

std::vector<RankAddress> addresses_of(const RankTable& ranks) {
  std::vector<RankAddress> addresses;
  for (const Member& member : ranks.members) {
    addresses.push_back(address_of(member));
  }
  return addresses;
}

namespace {

constexpr std::byte kWelcome{0x57};

// Delay before the first attempt of a late dial.
constexpr std::chrono::milliseconds kLateStart{250};

// Delay before the second attempt. Doubles with each further attempt, up to kMaxPause.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kMaxPause{5000};

// Every rank listens before the roster is published, so a rank that is unreachable for this long is
// gone.
constexpr std::chrono::seconds kReachPatience{3};

}  // namespace

// The byte always fits into the send buffer: only the handshake has been sent on this connection.
bool send_accept(int fd) noexcept {
  return net::write_some(fd, std::span(&kWelcome, 1)).n_bytes == 1;
}

Dial::Dial(const RankAddress& member,
           const std::string& secret,
           const net::HelloInfo& mine,
           Start start)
    : member_(member),
      secret_(secret),
      mine_(mine),
      start_(start),
      next_try_(Deadline::after(kLateStart)),
      reach_patience_(Deadline::after(kReachPatience)),
      hello_(net::Hello::Side::kClient, secret_, mine_) {
  if (start == Start::kNow) {
    begin();
  }
}

void Dial::begin() {
  try {
    net::Connecting connecting = net::begin_connect(member_.address);
    socket_ = std::move(connecting.fd);
    connect_error_ = connecting.error_number;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSystem || descriptor_patience_.has_passed()) {
      throw;
    }
    try_again_later();
    return;
  }
  next_try_ = Deadline::never();
  is_connected_ = false;
  net::set_liveness_timeout(socket_.get(), kLivenessTimeout);
  hello_ = net::Hello(net::Hello::Side::kClient, secret_, mine_);
  output_ = hello_.take_output();
}

Dial::Outcome Dial::progress() {
  if (!is_trying() && next_try_.has_passed()) {
    begin();
  }
  if (!is_trying()) {
    return Outcome::kNone;
  }
  if (!is_connected_) {
    const Outcome outcome = finish_connect();
    if (!is_connected_) {
      return outcome;
    }
  }
  return exchange_hello() ? read_welcome() : Outcome::kNone;
}

Dial::Outcome Dial::finish_connect() {
  int error_number = connect_error_;
  if (error_number == 0) {
    pollfd writable = poll();
    if (::poll(&writable, 1, 0) != 1) {
      return Outcome::kNone;
    }
    error_number = net::end_connect(socket_.get(), member_.address);
  }
  if (error_number == 0) {
    is_connected_ = true;
    return Outcome::kNone;
  }
  try_again_later();
  if (error_number == ECONNREFUSED) {
    return Outcome::kRefused;
  }
  // A listener that closes resets the connections that it has not accepted. The next attempt shows
  // whether the rank is gone.
  if (start_ == Start::kNow && reach_patience_.has_passed()) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("{} can't be reached at {}: {}",
                            member_.name,
                            member_.address.to_string(),
                            std::generic_category().message(error_number)));
  }
  return Outcome::kNone;
}

// Returns true once the handshake is complete.
bool Dial::exchange_hello() {
  std::array<std::byte, 1024> buffer{};
  while (true) {
    const net::IoResult sent = net::write_some(socket_.get(), output_);
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent.n_bytes));
    if (hello_.state() == net::Hello::State::kFailed) {
      throw Error(hello_.error().code(),
                  fmt::format("hello with {}: {}", member_.name, hello_.error().what()));
    }
    if (!output_.empty() && sent.status == net::IoStatus::kWouldBlock) {
      return false;
    }
    if (hello_.state() == net::Hello::State::kDone) {
      check_answer(member_, hello_.theirs(), mine_.job);
      return true;
    }
    const std::size_t n_wanted = std::min(buffer.size(), hello_.n_bytes_wanted());
    const net::IoResult read = net::read_some(socket_.get(), std::span(buffer).first(n_wanted));
    if (read.status == net::IoStatus::kWouldBlock) {
      return false;
    }
    if (read.status != net::IoStatus::kDone) {
      try_again_later();
      return false;
    }
    (void)hello_.feed(std::span(buffer).first(read.n_bytes));
    output_ = hello_.take_output();
  }
}

Dial::Outcome Dial::read_welcome() {
  std::byte answer{};
  const net::IoResult result = net::read_some(socket_.get(), std::span(&answer, 1));
  if (result.status == net::IoStatus::kWouldBlock) {
    return Outcome::kNone;
  }
  if (result.status == net::IoStatus::kDone) {
    if (answer != kWelcome) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{} sent an unexpected handshake reply", member_.name));
    }
    return Outcome::kWelcomed;
  }
  try_again_later();
  return result.status == net::IoStatus::kClosed ? Outcome::kTurnedAway : Outcome::kNone;
}

void Dial::try_again_later() {
  socket_.reset();
  pause_ = std::min(std::max(2 * pause_, kFirstPause), kMaxPause);
  next_try_ = Deadline::after(pause_);
}

pollfd Dial::poll() const {
  const bool writes = !is_connected_ || !output_.empty();
  return {
      .fd = socket_.get(), .events = static_cast<short>(writes ? POLLOUT : POLLIN), .revents = 0};
}

}  // namespace unisono::transport
