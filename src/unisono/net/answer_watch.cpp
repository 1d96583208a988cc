#include "unisono/net/answer_watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>

#include "unisono/base/deadline.h"

namespace unisono::net {
namespace {

constexpr int kLooks = 20;

}  // namespace

bool AnswerWatch::is_silent(int fd) noexcept {
  if (!next_look_.has_passed()) {
    return false;
  }
  next_look_ = Deadline::after(patience_ / kLooks);
  tcp_info info{};
  socklen_t size = sizeof(info);
  const bool is_known = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
  // Who has no room for what was sent answers that, each time that it is sent again.
  const bool is_unanswered =
      info.tcpi_unacked > 0 && info.tcpi_last_data_sent < info.tcpi_last_ack_recv;
  if (!is_known || (!is_unanswered && info.tcpi_probes == 0)) {
    unanswered_since_.reset();
    return false;
  }
  const Clock::time_point now = Clock::now();
  const auto last_answer = now - std::chrono::milliseconds(info.tcpi_last_ack_recv);
  if (!unanswered_since_ || last_answer > *unanswered_since_) {
    unanswered_since_ = now;
  }
  return now - *unanswered_since_ >= patience_;
}

}  // namespace unisono::net
