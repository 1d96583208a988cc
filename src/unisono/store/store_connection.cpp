#include "unisono/store/store_connection.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/store/handshake.h"
#include "unisono/store/messages.h"
#include "unisono/store/protocol.h"
#include "unisono/store/refusals.h"
#include "unisono/store/store_channel.h"
#include "unisono/store/timed_mutex.h"

namespace unisono::store {
namespace {

std::uint8_t read_wait_reply(StoreChannel& channel, Deadline deadline) {
  channel.begin_reply(deadline);
  return channel.read_u8(deadline);
}

// Who is interrupted is not to wait for a server that hangs.
constexpr std::chrono::milliseconds kPatience{50};

void expect_wait_reply(const StoreChannel& channel, std::uint8_t reply, WaitReply expected) {
  if (reply != static_cast<std::uint8_t>(expected)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: an answer that no wait has; is it a store?", channel.peer()));
  }
}

}  // namespace

StoreConnection::StoreConnection(const TcpStoreOptions& options, Deadline deadline)
    : StoreConnection(shake_hands(options, deadline), options.io_timeout) {}

StoreConnection::StoreConnection(Handshake handshake, std::chrono::milliseconds io_timeout)
    : io_timeout_(io_timeout),
      is_plain_(handshake.is_plain),
      job_(std::move(handshake.job)),
      channel_(std::move(handshake.channel)) {}

void StoreConnection::use(Deadline deadline, const Body& body) {
  const TimedLock lock(connection_mutex_, deadline, channel_.peer());
  if (!closed_because_.empty()) {
    throw Error(ErrorCode::kClosed, "the connection was closed after: " + closed_because_);
  }
  try {
    body(channel_);
  } catch (const Refusal&) {
    throw;  // In the place of an answer: the next one follows.
  } catch (const Error& error) {
    closed_because_ = error.what();
    throw;
  }
}

void StoreConnection::request(const ByteWriter& message, const Body& read_reply) {
  use(io_deadline(), [&](StoreChannel& channel) {
    send(channel, message);
    if (read_reply) {
      channel.begin_reply(io_deadline());
      read_reply(channel);
    }
  });
}

// What had no answer may be what the server has hung up for.
void StoreConnection::send(StoreChannel& channel, const ByteWriter& message) {
  try {
    channel.send(message.bytes(), io_deadline());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kPeerLost) {
      channel.check_for_reason();
    }
    throw;
  }
}

// Our server keeps what follows a wait until that ends, which saves a round trip. PyTorch's would
// answer it at once.
bool StoreConnection::wait_and_read(const ByteWriter& wait,
                                    const ByteWriter& then,
                                    Deadline deadline,
                                    const Body& read_reply) {
  bool is_done = false;
  std::exception_ptr interruption;
  use(deadline, [&](StoreChannel& channel) {
    ByteWriter message = wait;
    if (!is_plain_) {
      message.put_raw(then.bytes());
    }
    send(channel, message);
    is_done = end_wait(channel, deadline, is_plain_ ? Body() : read_reply, interruption);
    if (is_done && is_plain_ && read_reply && interruption == nullptr) {
      channel.send(then.bytes(), io_deadline());
      read_reply(channel);
    }
  });
  if (interruption != nullptr) {
    std::rethrow_exception(interruption);
  }
  return is_done;
}

std::uint8_t StoreConnection::cancel(StoreChannel& channel,
                                     const std::exception_ptr& interruption) {
  if (interruption == nullptr) {
    send(channel, begin(Opcode::kCancelWait));
    return read_wait_reply(channel, io_deadline());
  }
  try {
    const Deadline deadline = Deadline::after(kPatience);
    channel.send(begin(Opcode::kCancelWait).bytes(), deadline);
    return read_wait_reply(channel, deadline);
  } catch (const Error&) {
    std::rethrow_exception(interruption);
  }
}

bool StoreConnection::end_wait(StoreChannel& channel,
                               Deadline deadline,
                               const Body& read_rest,
                               std::exception_ptr& interruption) {
  const auto read_rest_if_any = [&] {
    if (read_rest) {
      channel.begin_reply(io_deadline());
      read_rest(channel);
    }
  };
  bool is_over = false;
  try {
    is_over = channel.wait_for_reply(deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) {
      throw;
    }
    interruption = std::current_exception();
  }
  if (is_over) {
    expect_wait_reply(channel, read_wait_reply(channel, io_deadline()), WaitReply::kStopWaiting);
    read_rest_if_any();
    return true;
  }
  try {
    const std::uint8_t first = cancel(channel, interruption);
    read_rest_if_any();
    if (first == static_cast<std::uint8_t>(WaitReply::kWaitCanceled)) {
      return false;
    }
    // The end of the wait and our cancellation crossed.
    expect_wait_reply(channel, first, WaitReply::kStopWaiting);
    expect_wait_reply(channel, read_wait_reply(channel, io_deadline()), WaitReply::kWaitCanceled);
    return true;
  } catch (const Refusal& refusal) {
    // An answer to the cancellation may still follow: the connection can't be used again.
    throw Error(refusal.code(), refusal.what());
  }
}

}  // namespace unisono::store
