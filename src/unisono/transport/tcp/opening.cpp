#include "unisono/transport/tcp/opening.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/rank_address.h"
#include "unisono/transport/tcp/liveness.h"

namespace unisono::tcp {
namespace {

constexpr std::chrono::milliseconds kAttempt{500};

// Listeners exist before the roster does, so a rank that can't be reached for this long is gone.
constexpr std::chrono::seconds kConnectTimeout{3};

// When a rank that is to connect is looked for first; each further look comes after twice the time.
constexpr std::chrono::milliseconds kFirstLook{250};
constexpr std::chrono::milliseconds kSecondLook{100};

// An attempt to connect.
class Knock {
 public:
  explicit Knock(const net::Address& address)
      : connecting_(net::begin_connect(address)), deadline_(Deadline::after(kAttempt)) {}

  // 0 once there is a connection, the errno once there is none, nothing until then.
  [[nodiscard]] std::optional<int> outcome(const net::Address& address) const {
    if (connecting_.error_number != 0) {
      return connecting_.error_number;
    }
    if (net::wait_for(fd(), POLLOUT, Deadline::after(std::chrono::milliseconds::zero()))) {
      return net::end_connect(fd(), address);
    }
    return deadline_.has_passed() ? std::optional<int>(ETIMEDOUT) : std::nullopt;
  }

  [[nodiscard]] Deadline deadline() const { return deadline_; }

  [[nodiscard]] int fd() const { return connecting_.fd.get(); }

  [[nodiscard]] Fd take() { return std::move(connecting_.fd); }

 private:
  net::Connecting connecting_;
  Deadline deadline_;
};

class Dial final : public Opening {
 public:
  Dial(const transport::RankAddress& member, const std::string& secret, const net::HelloInfo& mine)
      : member_(member),
        job_(mine.job),
        hello_(net::Hello::Side::kClient, secret, mine),
        knock_(member.address),
        last_knock_(Deadline::after(kConnectTimeout)) {}

  [[nodiscard]] Fd progress() override {
    if (!socket_.is_open()) {
      connect();
    }
    return socket_.is_open() && exchange_hello() ? std::move(socket_) : Fd();
  }

  [[nodiscard]] pollfd poll() const override {
    if (socket_.is_open()) {
      return {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    }
    return {.fd = has_failed_ ? -1 : knock_.fd(), .events = POLLOUT, .revents = 0};
  }

  [[nodiscard]] Deadline next_step() const override {
    return socket_.is_open() ? Deadline::never() : knock_.deadline();
  }

 private:
  void connect() {
    if (!has_failed_) {
      const std::optional<int> outcome = knock_.outcome(member_.address);
      if (!outcome) {
        return;
      }
      if (*outcome == 0) {
        socket_ = knock_.take();
        net::set_liveness_timeout(socket_.get(), kLivenessTimeout);
        send();
        return;
      }
      // All ranks have listened since before they met: one that refuses does so no more.
      if (*outcome == ECONNREFUSED) {
        throw transport::nobody_listens(member_);
      }
      if (last_knock_.has_passed()) {
        throw Error(ErrorCode::kPeerLost,
                    fmt::format("{} can't be reached at {}: {}",
                                member_.name,
                                member_.address.to_string(),
                                std::generic_category().message(*outcome)));
      }
      has_failed_ = true;
    }
    if (knock_.deadline().has_passed()) {
      knock_ = Knock(member_.address);
      has_failed_ = false;
    }
  }

  // A hello's messages fit into any socket's buffer.
  void send() {
    try {
      net::write_all(socket_.get(), hello_.take_output(), Deadline::after(kAttempt), member_.name);
    } catch (const Error& error) {
      // A listener that ends resets the connections that it has not accepted.
      throw error.code() == ErrorCode::kPeerLost ? ended() : error;
    }
  }

  [[nodiscard]] Error ended() const {
    return {ErrorCode::kPeerLost,
            fmt::format("{} ended the connection during the hello: it is about to leave the "
                        "group, or is gone",
                        member_.name)};
  }

  // True when it is done.
  [[nodiscard]] bool exchange_hello() {
    std::array<std::byte, 1024> buffer{};
    while (hello_.state() == net::Hello::State::kRunning) {
      const std::size_t n_wanted = std::min(buffer.size(), hello_.n_bytes_wanted());
      const net::IoResult result = net::read_some(socket_.get(), std::span(buffer).first(n_wanted));
      if (result.status == net::IoStatus::kWouldBlock) {
        return false;
      }
      if (result.status != net::IoStatus::kDone) {
        throw ended();
      }
      (void)hello_.feed(std::span(buffer).first(result.n_bytes));
      send();
    }
    if (hello_.state() == net::Hello::State::kFailed) {
      throw Error(hello_.error().code(),
                  fmt::format("hello with {}: {}", member_.name, hello_.error().what()));
    }
    transport::check_answer(member_, hello_.theirs(), job_);
    return true;
  }

  const transport::RankAddress& member_;
  std::string job_;
  net::Hello hello_;
  Knock knock_;
  bool has_failed_ = false;  // The knock has; the next one comes when its time is up.
  Deadline last_knock_;
  Fd socket_;  // Once there is a connection.
};

class Expectation final : public Opening {
 public:
  Expectation(const transport::RankAddress& member, std::function<Fd()> take_delivered)
      : member_(member), take_delivered_(std::move(take_delivered)) {}

  [[nodiscard]] Fd progress() override {
    Fd socket = take_delivered_();
    if (!socket.is_open()) {
      look();
    }
    return socket;
  }

  [[nodiscard]] pollfd poll() const override {
    return {.fd = look_ ? look_->fd() : -1, .events = POLLOUT, .revents = 0};
  }

  [[nodiscard]] Deadline next_step() const override {
    return look_ ? look_->deadline() : next_look_;
  }

 private:
  void look() {
    if (!look_ && next_look_.has_passed()) {
      begin_look();
    }
    const std::optional<int> outcome = look_ ? look_->outcome(member_.address) : std::nullopt;
    if (!outcome) {
      return;
    }
    const bool is_refused = *outcome == ECONNREFUSED;
    // The second time: its connection may have been on the way here when it left.
    if (is_refused && was_refused_) {
      throw transport::nobody_listens(member_);
    }
    was_refused_ = is_refused;
    look_.reset();
    next_look_ = Deadline::after(is_refused ? kSecondLook : until_next_);
    until_next_ *= 2;
  }

  void begin_look() {
    try {
      look_.emplace(member_.address);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kSystem || patience_.has_passed()) {
        throw;
      }
      next_look_ = Deadline::after(kFirstLook);
    }
  }

  const transport::RankAddress& member_;
  std::function<Fd()> take_delivered_;
  Deadline patience_ = Deadline::after(kDescriptorPatience);
  Deadline next_look_ = Deadline::after(kFirstLook);
  std::chrono::milliseconds until_next_ = 2 * kFirstLook;
  std::optional<Knock> look_;  // Under way.
  bool was_refused_ = false;
};

}  // namespace

std::unique_ptr<Opening> dial(const transport::RankAddress& member,
                              const std::string& secret,
                              const net::HelloInfo& mine) {
  return std::make_unique<Dial>(member, secret, mine);
}

std::unique_ptr<Opening> expect(const transport::RankAddress& member,
                                std::function<Fd()> take_delivered) {
  return std::make_unique<Expectation>(member, std::move(take_delivered));
}

}  // namespace unisono::tcp
