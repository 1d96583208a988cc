#include "unisono/transport/tcp/message_mesh.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/tcp/liveness.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/packet_stream.h"

namespace unisono::tcp {
namespace {

// Said after the hello by the side that accepted, when it keeps the connection.
constexpr std::byte kWelcome{0x57};

// Before a dial that was turned away, or refused, is tried again; each time twice as long.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kMaxPause{5000};

// A look whether somebody listens, who refuses at once if not.
constexpr std::chrono::milliseconds kGlance{100};

// Listeners exist before the roster does, so a rank that refuses is gone: but a connection of its
// own may have been on its way here when it left.
constexpr int kMaxRefusals = 3;

}  // namespace

MessageMesh::MessageMesh(std::vector<transport::RankAddress> members,
                         std::string secret,
                         net::HelloInfo mine,
                         transport::MakeStream make_stream,
                         bool has_other_nodes)
    : members_(std::move(members)),
      secret_(std::move(secret)),
      mine_(std::move(mine)),
      make_stream_(std::move(make_stream)) {
  if (has_other_nodes) {
    wakeup_ = std::make_unique<net::Wakeup>();
  }
}

PacketStream* MessageMesh::find(int rank) const {
  const auto found = streams_.find(rank);
  return found == streams_.end() ? nullptr : found->second.get();
}

bool MessageMesh::is_unreachable(int rank) {
  if (streams_.contains(rank) || dials_.contains(rank)) {
    return false;
  }
  {
    const MutexLock lock(mutex_);
    if (delivered_.contains(rank)) {
      return false;
    }
  }
  try {
    return net::is_refused(member(rank).address, Deadline::after(kGlance));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSystem) {
      throw;
    }
    return false;  // There is no descriptor for a look.
  }
}

void MessageMesh::open(int rank) {
  if (streams_.contains(rank) || dials_.contains(rank)) {
    return;
  }
  {
    const MutexLock lock(mutex_);
    if (delivered_.contains(rank)) {
      return;  // progress() takes it up.
    }
    dialed_.insert(rank);
  }
  begin(rank, dials_[rank]);
}

void MessageMesh::begin(int rank, Dial& dial) {
  try {
    dial.socket = net::begin_connect(member(rank).address).fd;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSystem || dial.patience.has_passed()) {
      throw;
    }
    try_again_later(dial);
    return;
  }
  dial.is_connected = false;
  dial.next_try = Deadline::never();
  net::set_liveness_timeout(dial.socket.get(), kLivenessTimeout);
  dial.hello = std::make_unique<net::Hello>(net::Hello::Side::kClient, secret_, mine_);
  dial.output = dial.hello->take_output();
}

std::vector<int> MessageMesh::progress() {
  std::vector<int> opened;
  take_delivered(opened);
  for (auto entry = dials_.begin(); entry != dials_.end();) {
    auto& [rank, dial] = *entry;
    const bool is_over = advance(rank, dial);
    if (is_over && !dial.is_needless) {
      adopt(rank, std::move(dial.socket));
      opened.push_back(rank);
    }
    entry = is_over || (dial.is_needless && !dial.socket.is_open()) ? dials_.erase(entry)
                                                                    : std::next(entry);
  }
  return opened;
}

void MessageMesh::finish_dials(Deadline deadline) {
  while (!dials_.empty() && !deadline.has_passed()) {
    (void)progress();
    std::vector<pollfd> polls;
    add_dial_polls(polls);
    (void)::poll(polls.data(), polls.size(), earlier(deadline, next_try()).poll_timeout_ms());
  }
}

bool MessageMesh::advance(int rank, Dial& dial) {
  if (!dial.socket.is_open()) {
    if (dial.next_try.has_passed()) {
      begin(rank, dial);
    }
    return false;
  }
  if (!dial.is_connected) {
    finish_connect(rank, dial);
    if (!dial.is_connected) {
      return false;
    }
  }
  if (!exchange_hello(rank, dial)) {
    return false;
  }
  std::byte answer{};
  const net::IoResult result = net::read_some(dial.socket.get(), std::span(&answer, 1));
  if (result.status == net::IoStatus::kWouldBlock) {
    return false;
  }
  if (result.status == net::IoStatus::kDone && answer == kWelcome) {
    return true;
  }
  // Turned away: the other side's own connection is on its way, or it is gone.
  try_again_later(dial);
  return false;
}

void MessageMesh::finish_connect(int rank, Dial& dial) {
  pollfd poll{.fd = dial.socket.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&poll, 1, 0) != 1) {
    return;
  }
  const int error_number = net::end_connect(dial.socket.get(), member(rank).address);
  if (error_number == 0) {
    dial.is_connected = true;
    dial.n_refusals = 0;
    return;
  }
  // A listener that ends resets the connections that it has not accepted.
  const bool is_refused = error_number == ECONNREFUSED || error_number == ECONNRESET;
  if (dial.is_needless || (is_refused && ++dial.n_refusals < kMaxRefusals)) {
    try_again_later(dial);
    return;
  }
  if (is_refused) {
    throw transport::nobody_listens(member(rank));
  }
  throw Error(ErrorCode::kPeerLost,
              fmt::format("{} can't be reached at {}: {}",
                          member(rank).name,
                          member(rank).address.to_string(),
                          std::generic_category().message(error_number)));
}

// True when the hello is done.
bool MessageMesh::exchange_hello(int rank, Dial& dial) {
  std::array<std::byte, 1024> buffer{};
  while (true) {
    const net::IoResult sent = net::write_some(dial.socket.get(), dial.output);
    dial.output.erase(dial.output.begin(),
                      dial.output.begin() + static_cast<std::ptrdiff_t>(sent.n_bytes));
    if (dial.hello->state() == net::Hello::State::kFailed) {
      throw Error(dial.hello->error().code(),
                  fmt::format("hello with {}: {}", member(rank).name, dial.hello->error().what()));
    }
    if (!dial.output.empty() && sent.status == net::IoStatus::kWouldBlock) {
      return false;
    }
    if (dial.hello->state() == net::Hello::State::kDone) {
      transport::check_answer(member(rank), dial.hello->theirs(), mine_.job);
      return true;
    }
    const std::size_t n_wanted = std::min(buffer.size(), dial.hello->n_bytes_wanted());
    const net::IoResult read = net::read_some(dial.socket.get(), std::span(buffer).first(n_wanted));
    if (read.status == net::IoStatus::kWouldBlock) {
      return false;
    }
    if (read.status != net::IoStatus::kDone) {
      try_again_later(dial);
      return false;
    }
    (void)dial.hello->feed(std::span(buffer).first(read.n_bytes));
    dial.output = dial.hello->take_output();
  }
}

void MessageMesh::try_again_later(Dial& dial) {
  dial.socket.reset();
  dial.pause = std::min(std::max(2 * dial.pause, kFirstPause), kMaxPause);
  dial.next_try = Deadline::after(dial.pause);
}

void MessageMesh::adopt(int rank, Fd socket) {
  net::set_no_delay(socket.get());
  net::set_idle_timeout(socket.get(), kLivenessTimeout);
  streams_[rank] =
      std::make_unique<PacketStream>(member(rank).name, mine_.group, make_stream_(std::move(socket)));
  const MutexLock lock(mutex_);
  dialed_.erase(rank);
  connected_.insert(rank);
}

void MessageMesh::take_delivered(std::vector<int>& opened) {
  std::map<int, Fd> delivered;
  {
    const MutexLock lock(mutex_);
    delivered.swap(delivered_);
    for (const auto& [rank, socket] : delivered) {
      connected_.insert(rank);
    }
  }
  for (auto& [rank, socket] : delivered) {
    adopt(rank, std::move(socket));
    opened.push_back(rank);
    if (const auto dial = dials_.find(rank); dial != dials_.end()) {
      dial->second.is_needless = true;
    }
  }
}

void MessageMesh::deliver(int rank, Fd socket) {
  {
    const MutexLock lock(mutex_);
    const bool is_mine_better = member(rank).job_rank < mine_.rank && dialed_.contains(rank);
    if (is_door_closed_ || is_mine_better || connected_.contains(rank) ||
        delivered_.contains(rank)) {
      return;  // Closes it.
    }
    if (!welcome(socket.get())) {
      return;
    }
    delivered_.emplace(rank, std::move(socket));
  }
  wake();
}

// It fits into the buffer of a connection on which nothing but the hello was said.
bool MessageMesh::welcome(int fd) noexcept {
  return net::write_some(fd, std::span(&kWelcome, 1)).n_bytes == 1;
}

void MessageMesh::add_dial_polls(std::vector<pollfd>& polls) const {
  for (const auto& [rank, dial] : dials_) {
    if (dial.socket.is_open()) {
      const bool has_output = !dial.is_connected || !dial.output.empty();
      polls.push_back({.fd = dial.socket.get(),
                       .events = static_cast<short>(has_output ? POLLOUT : POLLIN),
                       .revents = 0});
    }
  }
}

void MessageMesh::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({.fd = wakeup_->fd(), .events = POLLIN, .revents = 0});
  add_dial_polls(polls);
  for (const auto& [rank, stream] : streams_) {
    if (!stream->has_left()) {
      stream->frames().stream().add_polls(polls, true, stream->is_blocked());
    }
  }
}

Deadline MessageMesh::next_try() const {
  Deadline next = streams_.empty() ? Deadline::never() : Deadline::after(kLivenessLook);
  for (const auto& [rank, dial] : dials_) {
    next = earlier(next, dial.next_try);
  }
  return next;
}

std::vector<PacketStream*> MessageMesh::streams() const {
  std::vector<PacketStream*> streams;
  for (const auto& [rank, stream] : streams_) {
    streams.push_back(stream.get());
  }
  return streams;
}

void MessageMesh::close_door() {
  {
    const MutexLock lock(mutex_);
    is_door_closed_ = true;
  }
  std::vector<int> opened;
  take_delivered(opened);
}

void MessageMesh::close() {
  streams_.clear();
  dials_.clear();
  const MutexLock lock(mutex_);
  delivered_.clear();
}

}  // namespace unisono::tcp
