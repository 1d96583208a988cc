#include "unisono/store/store_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/thread.h"
#include "unisono/net/hello.h"
#include "unisono/net/host.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/store/protocol.h"
#include "unisono/store/refusals.h"
#include "unisono/store/store.h"

namespace unisono::store {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{16} << 10;
constexpr std::uint64_t kMaxReplyBytes = std::uint64_t{1} << 30;

}  // namespace

StoreChannel::StoreChannel(Fd fd, std::string peer)
    : fd_(std::move(fd)), peer_(std::move(peer)), buffer_(kBufferBytes) {
  net::set_patient(fd_.get());
}

void StoreChannel::start_tls(const std::string& secret, Deadline deadline) {
  tls_ = std::make_unique<net::TlsStream>(fd_.get(), secret, deadline, peer_);
}

void StoreChannel::send(std::span<const std::byte> bytes, Deadline deadline) {
  if (tls_ == nullptr) {
    net::write_all(fd_.get(), bytes, deadline, peer_);
  } else {
    tls_->write_all(bytes, deadline, peer_);
  }
}

bool StoreChannel::wait_for_reply(Deadline deadline) {
  if (n_used_ < n_filled_) {
    return true;
  }
  n_used_ = 0;
  n_filled_ = 0;
  while (true) {
    const Deadline next = earlier(deadline, next_interruption_check());
    n_filled_ = tls_ == nullptr ? net::read_by(fd_.get(), buffer_, next, peer_)
                                : tls_->read_some(buffer_, next, peer_);
    if (n_filled_ > 0) {
      return true;
    }
    if (deadline.has_passed()) {
      return false;
    }
    check_interruption();
  }
}

void StoreChannel::begin_reply(Deadline deadline) {
  if (!has_reasons_) {
    return;
  }
  const auto kind = static_cast<ReplyKind>(read_u8(deadline));
  if (kind == ReplyKind::kAnswer) {
    return;
  }
  if (kind != ReplyKind::kRefusal && kind != ReplyKind::kEnd) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: a reply of an unknown kind", peer_));
  }
  const std::string reason = read_string(deadline);
  if (kind == ReplyKind::kRefusal) {
    throw Refusal(fmt::format("{}: {}", peer_, reason));
  }
  throw ServerClosedError(fmt::format("{} ended the connection: {}", peer_, reason));
}

void StoreChannel::check_for_reason() {
  constexpr std::chrono::milliseconds kPatience{50};
  try {
    begin_reply(Deadline::after(kPatience));
  } catch (const ServerClosedError&) {
    throw;
  } catch (const Error&) {
    return;  // The server has sent no reason.
  }
}

std::uint8_t StoreChannel::read_u8(Deadline deadline) {
  return read_number<std::uint8_t>(deadline);
}

std::uint32_t StoreChannel::read_u32(Deadline deadline) {
  return read_number<std::uint32_t>(deadline);
}

std::int64_t StoreChannel::read_i64(Deadline deadline) {
  return read_number<std::int64_t>(deadline);
}

std::string StoreChannel::read_string(Deadline deadline) {
  const auto size = read_number<std::uint64_t>(deadline);
  if (size > kMaxReplyBytes) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: a reply claims to have {} bytes", peer_, size));
  }
  std::string text(size, '\0');
  read(std::as_writable_bytes(std::span(text)), deadline);
  return text;
}

template <class T>
T StoreChannel::read_number(Deadline deadline) {
  T value{};
  read(std::as_writable_bytes(std::span(&value, 1)), deadline);
  return value;
}

void StoreChannel::read(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (n_used_ == n_filled_) {
      if (tls_ == nullptr && bytes.size() >= buffer_.size()) {
        net::read_exact(fd_.get(), bytes, deadline, peer_);
        return;
      }
      fill(deadline);
    }
    const std::size_t n = std::min(bytes.size(), n_filled_ - n_used_);
    std::memcpy(bytes.data(), buffer_.data() + n_used_, n);
    n_used_ += n;
    bytes = bytes.subspan(n);
  }
}

void StoreChannel::fill(Deadline deadline) {
  if (!wait_for_reply(deadline)) {
    throw Error(ErrorCode::kTimeout, fmt::format("{}: no answer in time", peer_));
  }
}

namespace {

constexpr std::uint32_t kNonce = 0x756E6973;

std::string name_of(const TcpStoreOptions& options) {
  return "store " + net::join_host_port(options.host, options.port);
}

StoreChannel connect(const TcpStoreOptions& options, Deadline deadline) {
  Fd fd = net::connect_tcp(options.host, options.port, deadline, options.if_refused);
  net::set_liveness_timeout(fd.get(), std::chrono::seconds(60));
  return {std::move(fd), name_of(options)};
}

void read_pong(StoreChannel& channel, Deadline deadline) {
  if (channel.read_u32(deadline) != kNonce) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: a wrong answer to the first request; is it a store?", channel.peer()));
  }
}

ByteWriter validate() {
  ByteWriter message = begin(Opcode::kValidate);
  message.put(kValidateMagic);
  return message;
}

ByteWriter ping() {
  ByteWriter message = begin(Opcode::kPing);
  message.put(kNonce);
  return message;
}

// Returns the name of the job if the server is Unisono's. Returns std::nullopt for PyTorch's
// server, which closes the connection on EXPLAIN; earlier replies may be lost with the connection.
std::optional<std::string> ask_for_job(StoreChannel& channel, Deadline deadline) {
  ByteWriter message = validate();
  message.put_raw(begin(Opcode::kExplain).bytes());
  message.put_raw(begin(Opcode::kVersion).bytes());
  try {
    channel.send(message.bytes(), deadline);
    channel.expect_reasons();
    channel.begin_reply(deadline);
    const std::uint32_t version = channel.read_u32(deadline);
    if (version != net::kProtocolVersion) {
      throw Error(ErrorCode::kIncompatible,
                  fmt::format("{} uses protocol version {}, this process {}; all ranks need the "
                              "same release of unisono",
                              channel.peer(),
                              version,
                              net::kProtocolVersion));
    }
    return channel.read_string(deadline);
  } catch (const ServerClosedError&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) {
      throw;
    }
    return std::nullopt;
  }
}

StoreChannel connect_plain(const TcpStoreOptions& options, Deadline deadline) {
  StoreChannel channel = connect(options, deadline);
  try {
    ByteWriter message = validate();
    message.put_raw(ping().bytes());
    channel.send(message.bytes(), deadline);
    read_pong(channel, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) {
      throw;
    }
    throw Error(error.code(),
                std::string(error.what()) +
                    "; it is not a store, or it is one that requires a secret (UNISONO_SECRET, "
                    "UNISONO_SECRET_FILE)");
  }
  return channel;
}

// Authenticates both sides. Returns the server's name of the job.
std::string say_hello(StoreChannel& channel, const TcpStoreOptions& options, Deadline deadline) {
  if (options.tls) {
    channel.start_tls(options.secret, deadline);
  }
  const std::string peer = "hello with " + channel.peer();
  net::HelloInfo theirs;
  try {
    theirs = net::connect_hello(
        {.write = [&](std::span<const std::byte> bytes) { channel.send(bytes, deadline); },
         .read = [&](std::span<std::byte> bytes) { channel.read(bytes, deadline); }},
        options.secret,
        {.job = "", .purpose = kHelloPurpose, .rank = options.rank},
        peer);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost || options.tls) {
      throw;
    }
    throw Error(error.code(),
                std::string(error.what()) +
                    "; it is not a Unisono store, or it is one that requires TLS (UNISONO_TLS=on)");
  }
  // A rank's data listener has the same secret, and an attacker may have redirected the connection
  // there.
  if (theirs.purpose != kHelloPurpose) {
    throw Error(ErrorCode::kUnauthenticated,
                fmt::format("{}: it serves \"{}\", and is not a store", peer, theirs.purpose));
  }
  channel.send(begin(Opcode::kExplain).bytes(), deadline);
  channel.expect_reasons();
  return theirs.job;
}

}  // namespace

Handshake shake_hands(const TcpStoreOptions& options, Deadline deadline) {
  if (options.tls) {
    net::Tls::check_usable(options.secret, name_of(options));
  }
  StoreChannel channel = connect(options, deadline);
  const auto start = Deadline::Clock::now();
  std::optional<std::string> job;
  try {
    job = options.secret.empty() ? ask_for_job(channel, deadline)
                                 : say_hello(channel, options, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) {
      throw;
    }
    const std::chrono::duration<double> spent = Deadline::Clock::now() - start;
    throw ServerUnresponsiveError(
        fmt::format("{} accepts connections, but has not answered as a store does for {:.1f} s",
                    net::join_host_port(options.host, options.port),
                    spent.count()));
  }
  if (!job) {
    return {.channel = connect_plain(options, deadline), .is_plain = true, .job = ""};
  }
  return {.channel = std::move(channel), .is_plain = false, .job = *job};
}

}  // namespace unisono::store
