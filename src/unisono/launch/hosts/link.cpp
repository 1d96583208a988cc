#include "unisono/launch/hosts/link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <variant>

namespace unisono::launch::hosts {
namespace {

using Clock = Deadline::Clock;

// Each side sends this text first. Text of a shell does not contain it.
constexpr std::string_view kGreeting = "\x1e\x02unisono hosts 1\x03\x1e";
constexpr std::size_t kReadBytes = 65536;

void make_nonblocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// Returns the length of the longest suffix of `text` that may be the beginning of the greeting.
std::size_t held_back(std::string_view text) {
  std::size_t length = std::min(text.size(), kGreeting.size() - 1);
  while (!text.ends_with(kGreeting.substr(0, length))) {
    --length;
  }
  return length;
}

}  // namespace

HostLink::HostLink(net::EventLoop& loop, Fd in, Fd out, const KeepAlive& keep_alive, Events events)
    : loop_(loop),
      in_(std::move(in)),
      out_(std::move(out)),
      keep_alive_(keep_alive),
      events_(std::move(events)) {
  make_nonblocking(in_.get());
  make_nonblocking(out_.get());
  loop_.add(in_.get(), EPOLLIN, [this](std::uint32_t /*events*/) { on_readable(); });
  const auto greeting = std::as_bytes(std::span(kGreeting));
  output_.assign(greeting.begin(), greeting.end());
  flush();
}

HostLink::~HostLink() {
  loop_.cancel_timer(timer_);
  if (is_writing_) {
    loop_.remove(out_.get());
  }
  if (!is_lost()) {
    loop_.remove(in_.get());
  }
}

void HostLink::send(const Message& message) {
  if (out_.is_open()) {
    append_frame(output_, encode(message));
    flush();
  }
}

void HostLink::pause(bool is_paused) {
  if (is_lost() || is_paused == is_paused_) {
    return;
  }
  is_paused_ = is_paused;
  heard_ = Clock::now();
  loop_.modify(in_.get(), is_paused ? 0 : static_cast<std::uint32_t>(EPOLLIN));
}

void HostLink::on_readable() {
  std::array<char, kReadBytes> buffer;
  const ssize_t n_bytes = ::read(in_.get(), buffer.data(), buffer.size());
  if (n_bytes > 0) {
    heard_ = Clock::now();
    take({buffer.data(), static_cast<std::size_t>(n_bytes)});
  } else if (n_bytes == 0) {
    lose("the connection was closed");
  } else if (errno != EAGAIN && errno != EINTR) {
    lose(fmt::format("the connection broke: {}", std::generic_category().message(errno)));
  }
}

void HostLink::take(std::string_view bytes) {
  if (is_greeted_) {
    input_.feed(std::as_bytes(std::span(bytes)));
    take_messages();
    return;
  }
  noise_ += bytes;
  const std::size_t greeting = noise_.find(kGreeting);
  const std::size_t n_noise =
      greeting == std::string::npos ? noise_.size() - held_back(noise_) : greeting;
  if (n_noise > 0) {
    events_.on_noise(std::string_view(noise_).substr(0, n_noise));
  }
  noise_.erase(0, n_noise);
  if (greeting != std::string::npos) {
    is_greeted_ = true;
    const std::string rest = std::exchange(noise_, {}).substr(kGreeting.size());
    beat();
    take(rest);
  }
}

void HostLink::take_messages() {
  std::optional<std::span<const std::byte>> bytes;
  while (!is_lost() && (bytes = input_.next())) {
    std::optional<Message> message = decode(*bytes);
    if (!message) {
      lose("received an invalid message of a launcher");
    } else if (!std::holds_alternative<Alive>(*message)) {
      events_.on_message(std::move(*message));
    }
  }
  if (input_.is_broken()) {
    lose("received an invalid message of a launcher");
  }
}

void HostLink::beat() {
  const auto silence = Clock::now() - heard_;
  if (silence >= keep_alive_.longest_silence() && !is_paused_) {
    lose(fmt::format("nothing was received from it for {:.1f} s",
                     std::chrono::duration<double>(silence).count()));
    return;
  }
  send(Alive{});
  timer_ = loop_.add_timer(Deadline::after(keep_alive_.interval), [this] { beat(); });
}

// A failed write only discards the output. The end of the other direction reports the loss of the
// peer, after all messages that can still be read.
void HostLink::flush() {
  while (!output_.empty() && out_.is_open()) {
    const ssize_t n_bytes = ::write(out_.get(), output_.data(), output_.size());
    if (n_bytes >= 0) {
      output_.erase(output_.begin(), output_.begin() + n_bytes);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      output_.clear();
    }
  }
  if (is_writing_ == output_.empty()) {
    is_writing_ = !is_writing_;
    if (is_writing_) {
      loop_.add(out_.get(), EPOLLOUT, [this](std::uint32_t /*events*/) { flush(); });
    } else {
      loop_.remove(out_.get());
    }
  }
}

void HostLink::lose(const std::string& why) {
  if (is_lost()) {
    return;
  }
  loop_.cancel_timer(timer_);
  if (std::exchange(is_writing_, false)) {
    loop_.remove(out_.get());
  }
  output_.clear();
  out_.reset();
  loop_.remove(in_.get());
  in_.reset();
  events_.on_lost(why);
}

}  // namespace unisono::launch::hosts
