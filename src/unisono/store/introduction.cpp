#include "unisono/store/introduction.h"

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
#include "unisono/net/socket.h"
#include "unisono/store/messages.h"
#include "unisono/store/protocol.h"
#include "unisono/store/store_channel.h"

namespace unisono::store {
namespace {

constexpr std::uint32_t kNonce = 0x756E6973;

StoreChannel connect(const TcpStoreOptions& options, Deadline deadline) {
  Fd fd = net::connect_tcp(options.host, options.port, deadline, options.if_refused);
  net::set_liveness_timeout(fd.get(), std::chrono::seconds(60));
  return {std::move(fd), fmt::format("store {}:{}", options.host, options.port)};
}

void read_pong(StoreChannel& channel, Deadline deadline) {
  if (channel.read_u32(deadline) != kNonce) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: a wrong answer to the first request; is it a store?", channel.peer()));
  }
}

ByteWriter first_words() {
  ByteWriter message = begin(Opcode::kValidate);
  message.put(kValidateMagic);
  message.put(static_cast<std::uint8_t>(Opcode::kPing));
  message.put(kNonce);
  return message;
}

// The job that a server of ours has. PyTorch's hangs up, and may take its earlier answers with it.
std::optional<std::string> ask_for_job(StoreChannel& channel, Deadline deadline) {
  ByteWriter message = first_words();
  message.put(static_cast<std::uint8_t>(Opcode::kVersion));
  try {
    channel.send(message.bytes(), deadline);
    read_pong(channel, deadline);
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
    channel.send(first_words().bytes(), deadline);
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
  return theirs.job;
}

}  // namespace

Introduced introduce(const TcpStoreOptions& options, Deadline deadline) {
  StoreChannel channel = connect(options, deadline);
  const std::optional<std::string> job = options.secret.empty()
                                             ? ask_for_job(channel, deadline)
                                             : say_hello(channel, options, deadline);
  if (!job) {
    return {.channel = connect_plain(options, deadline), .is_plain = true, .job = ""};
  }
  return {.channel = std::move(channel), .is_plain = false, .job = *job};
}

}  // namespace unisono::store
