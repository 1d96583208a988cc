#include "unisono/store/handshake.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/hello.h"
#include "unisono/net/host_port.h"
#include "unisono/net/socket.h"
#include "unisono/net/tls.h"
#include "unisono/store/messages.h"
#include "unisono/store/protocol.h"
#include "unisono/store/server_errors.h"
#include "unisono/store/store_channel.h"

namespace unisono::store {
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

// The job that a server of ours has. PyTorch's hangs up, and may take its earlier answers with it.
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
                  fmt::format("{} speaks protocol version {}, this process {}; all ranks need the "
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
                    "; it is no store, or one that wants a secret (UNISONO_SECRET, "
                    "UNISONO_SECRET_FILE)");
  }
  return channel;
}

// Returns the job that the server has.
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
                    "; it is no store of ours, or one that wants TLS (UNISONO_TLS=on)");
  }
  // A rank's data port knows the secret, too, and somebody may have led us there.
  if (theirs.purpose != kHelloPurpose) {
    throw Error(ErrorCode::kUnauthenticated,
                fmt::format("{}: it is there for \"{}\", and no store", peer, theirs.purpose));
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
