#include "unisono/net/answer_watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "unisono/base/deadline.h"

namespace unisono::net {
namespace {

constexpr int kLooks = 20;

// Looks further apart are not of one wait.
constexpr int kMostIntervals = 3;

// Who has no room for what was sent answers that, each time that it is sent again.
bool is_asked_for_answer(const tcp_info& info) {
  const bool is_unanswered =
      info.tcpi_unacked > 0 && info.tcpi_last_data_sent < info.tcpi_last_ack_recv;
  return is_unanswered || info.tcpi_probes > 0;
}

std::chrono::milliseconds since_answer(const tcp_info& info) {
  // Data shows that the other side is there. It does not show that it has what was sent.
  const bool is_data_answer = info.tcpi_probes > 0 && info.tcpi_unacked == 0;
  return std::chrono::milliseconds(is_data_answer
                                       ? std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)
                                       : info.tcpi_last_ack_recv);
}

}  // namespace

std::chrono::milliseconds AnswerWatch::interval() const {
  return patience_ / kLooks;
}

bool AnswerWatch::is_silent(int fd) noexcept {
  if (!next_look_.has_passed()) {
    return false;
  }
  next_look_ = Deadline::after(interval());
  tcp_info info{};
  socklen_t size = sizeof(info);
  // Of what is no TCP socket nothing is known, as if nothing had been sent.
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    info = {};
  }
  return is_silent(info, Clock::now());
}

bool AnswerWatch::is_silent(const tcp_info& info, Clock::time_point now) noexcept {
  const bool has_paused = now - std::exchange(last_look_, now) > kMostIntervals * interval();
  if (!is_asked_for_answer(info)) {
    unanswered_since_.reset();
    return false;
  }
  if (!unanswered_since_ || has_paused || now - since_answer(info) > *unanswered_since_) {
    unanswered_since_ = now;
  }
  return now - *unanswered_since_ >= patience_;
}

}  // namespace unisono::net
