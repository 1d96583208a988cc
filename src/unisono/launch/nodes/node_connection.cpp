#include "unisono/launch/nodes/node_connection.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>

#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::launch::nodes {
namespace {

using Clock = Deadline::Clock;

constexpr const char* kPurpose = "launch";
constexpr std::size_t kReadBytes = 65536;

std::string describe(const net::IoResult& result) {
  return result.status == net::IoStatus::kClosed
             ? "the connection was closed"
             : fmt::format("the connection broke: {}",
                           std::generic_category().message(result.error_number));
}

}  // namespace

NodeConnection::NodeConnection(net::EventLoop& loop,
                               Fd socket,
                               net::Hello::Side side,
                               const std::string& secret,
                               const KeepAlive& keep_alive,
                               Events events)
    : loop_(loop),
      socket_(std::move(socket)),
      peer_(net::describe_peer(socket_.get())),
      hello_(side, secret, {.job = {}, .purpose = kPurpose}),
      keep_alive_(keep_alive),
      events_(std::move(events)),
      heard_(Clock::now()) {
  loop_.add(socket_.get(), EPOLLIN, [this](std::uint32_t /*events*/) { on_ready(); });
  queue(hello_.take_output());
  beat();
}

NodeConnection::~NodeConnection() {
  loop_.cancel_timer(timer_);
  if (socket_.is_open()) {
    loop_.remove(socket_.get());
  }
}

void NodeConnection::send(const Message& message) {
  append_frame(is_admitted() ? output_ : waiting_, encode(message));
  flush();
}

void NodeConnection::on_ready() {
  if (!problem_.empty()) {
    lose(problem_);
    return;
  }
  flush();
  std::array<std::byte, kReadBytes> buffer;
  const net::IoResult result = net::read_some(socket_.get(), buffer);
  if (result.status == net::IoStatus::kDone) {
    heard_ = Clock::now();
    take(std::span(buffer).first(result.n_bytes));
  } else if (result.status != net::IoStatus::kWouldBlock) {
    lose(describe(result));
  }
}

void NodeConnection::take(std::span<const std::byte> bytes) {
  if (hello_.state() == net::Hello::State::kRunning) {
    bytes = bytes.subspan(hello_.feed(bytes));
    queue(hello_.take_output());
    if (hello_.state() == net::Hello::State::kFailed) {
      lose(hello_.error().what());
      return;
    }
    if (is_admitted() && hello_.theirs().purpose != kPurpose) {
      is_foreign_ = true;
      lose(fmt::format("it is not a launcher: its connections are for \"{}\"",
                       hello_.theirs().purpose));
      return;
    }
    if (is_admitted()) {
      queue(std::exchange(waiting_, {}));
    }
  }
  input_.feed(bytes);
  take_messages();
}

void NodeConnection::take_messages() {
  std::optional<std::span<const std::byte>> bytes;
  while (!is_lost() && (bytes = input_.next())) {
    std::optional<Message> message = decode(*bytes);
    if (!message) {
      lose("it sent an invalid message of a launcher");
    } else if (!std::holds_alternative<Alive>(*message)) {
      events_.on_message(std::move(*message));
    }
  }
  if (input_.is_broken()) {
    lose("it sent an invalid message of a launcher");
  }
}

void NodeConnection::beat() {
  const auto silence = Clock::now() - heard_;
  if (silence >= keep_alive_.longest_silence()) {
    lose(fmt::format("nothing was received from it for {:.1f} s",
                     std::chrono::duration<double>(silence).count()));
    return;
  }
  if (is_admitted()) {
    send(Alive{});
  }
  timer_ = loop_.add_timer(Deadline::after(keep_alive_.interval), [this] { beat(); });
}

void NodeConnection::queue(std::span<const std::byte> bytes) {
  output_.insert(output_.end(), bytes.begin(), bytes.end());
  flush();
}

void NodeConnection::flush() {
  if (is_lost() || output_.empty() || !problem_.empty()) {
    return;
  }
  const net::IoResult result = net::write_some(socket_.get(), output_);
  if (result.status == net::IoStatus::kDone) {
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(result.n_bytes));
  } else if (result.status != net::IoStatus::kWouldBlock) {
    problem_ = describe(result);
  }
  // A broken socket is always readable and writable, so on_ready() runs and reports the problem.
  loop_.modify(socket_.get(), output_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void NodeConnection::lose(const std::string& why) {
  if (is_lost()) {
    return;
  }
  loop_.cancel_timer(timer_);
  loop_.remove(socket_.get());
  socket_.reset();
  events_.on_lost(why);
}

}  // namespace unisono::launch::nodes
