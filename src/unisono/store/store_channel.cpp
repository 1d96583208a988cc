#include "unisono/store/store_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/interruption.h"
#include "unisono/net/io.h"
#include "unisono/net/tls_stream.h"
#include "unisono/store/protocol.h"
#include "unisono/store/refusals.h"
#include "unisono/store/server_errors.h"

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
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: a reply of a kind that no store has", peer_));
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
    return;  // There are none.
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

}  // namespace unisono::store
