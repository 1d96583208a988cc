#include "unisono/launch/nodes/node_member.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/net/hello.h"
#include "unisono/net/host.h"
#include "unisono/net/ports.h"
#include "unisono/net/socket.h"

namespace unisono::launch::nodes {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kPause{200};
// Limit of an attempt. Where a network drops packets, another address of the host may answer.
constexpr std::chrono::seconds kPatience{5};

std::string seconds(Clock::duration time) {
  return fmt::format("{:.0f} s", std::chrono::duration<double>(time).count());
}

}  // namespace

NodeMember::NodeMember(net::EventLoop& loop, const MemberOptions& options)
    : loop_(loop),
      options_(options),
      begin_(Clock::now()),
      end_(Deadline::after(options.join_timeout)),
      report_after_(options.report_after) {
  connect();
}

NodeMember::~NodeMember() {
  drop_attempt();
}

std::optional<Message> NodeMember::take() {
  if (received_.empty()) {
    return std::nullopt;
  }
  Message message = std::move(received_.front());
  received_.pop_front();
  return message;
}

void NodeMember::send(const Message& message) {
  if (connection_ != nullptr && !connection_->is_lost()) {
    connection_->send(message);
  }
}

void NodeMember::connect() {
  connection_.reset();
  try {
    const std::vector<net::Address> addresses = net::resolve(options_.host, options_.port);
    const net::Address& address = addresses[n_attempts_++ % addresses.size()];
    net::Connecting connecting = net::begin_connect(address);
    if (connecting.error_number != 0) {
      try_again(std::generic_category().message(connecting.error_number));
      return;
    }
    attempt_ = std::move(connecting.fd);
    loop_.add(attempt_.get(), EPOLLOUT, [this, address](std::uint32_t /*events*/) {
      on_connecting(address);
    });
    timer_ = loop_.add_timer(earlier(end_, Deadline::after(kPatience)),
                             [this] { try_again("no answer"); });
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) {
      problem_ = error.what();
      return;
    }
    try_again(error.what());
  }
}

void NodeMember::on_connecting(const net::Address& address) {
  const int error_number = net::end_connect(attempt_.get(), address);
  if (error_number != 0) {
    try_again(std::generic_category().message(error_number));
    return;
  }
  is_coordinator_here_ = net::is_own_address(net::interfaces(), address);
  introduce();
}

void NodeMember::introduce() {
  loop_.cancel_timer(timer_);
  loop_.remove(attempt_.get());
  connection_ = std::make_unique<NodeConnection>(
      loop_,
      std::move(attempt_),
      net::Hello::Side::kClient,
      options_.secret,
      options_.keep_alive,
      NodeConnection::Events{
          .on_message = [this](Message message) { received_.push_back(std::move(message)); },
          .on_lost = [this](const std::string& why) { on_lost(why); }});
  connection_->send(options_.join);
}

void NodeMember::on_lost(const std::string& why) {
  if (connection_->is_admitted() && !connection_->has_failed_hello()) {
    problem_ = fmt::format(
        "lost the connection to the launcher of node 0 at {}: {}; it has ended, or the network is "
        "cut",
        place(),
        why);
  } else if (connection_->has_failed_hello()) {
    const std::string holder =
        is_coordinator_here_ ? net::find_port_holder(options_.port) : std::string();
    problem_ = fmt::format("can't join the job at {}: {}{}",
                           place(),
                           why,
                           holder.empty() ? "" : fmt::format(" (there listens {})", holder));
  } else {
    try_again(why);
  }
}

void NodeMember::drop_attempt() {
  loop_.cancel_timer(timer_);
  if (attempt_.is_open()) {
    loop_.remove(attempt_.get());
    attempt_.reset();
  }
}

void NodeMember::try_again(const std::string& reason) {
  drop_attempt();
  const Clock::duration waited = Clock::now() - begin_;
  if (end_.has_passed()) {
    problem_ = fmt::format("no launcher of node 0 at {} within {}: {}{}",
                           place(),
                           seconds(waited),
                           reason,
                           options_.hint);
    return;
  }
  if (waited >= report_after_) {
    report_after_ *= 2;
    received_.emplace_back(
        Notice{fmt::format("still waiting after {} for the launcher of node 0 at {}: {}{}",
                           seconds(waited),
                           place(),
                           reason,
                           options_.hint)});
  }
  timer_ = loop_.add_timer(earlier(end_, Deadline::after(kPause)), [this] { connect(); });
}

std::string NodeMember::place() const {
  return net::join_host_port(options_.host, options_.port);
}

}  // namespace unisono::launch::nodes
