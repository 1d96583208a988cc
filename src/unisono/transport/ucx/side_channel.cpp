#include "unisono/transport/ucx/side_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace unisono::ucx {
namespace {

// "unisoUCX", followed by the size and the bytes of the address, in the byte order of the writing
// machine.
constexpr std::uint64_t kMagic = 0x584355'6f73696e75;
constexpr std::size_t kGreetingHead = 2 * sizeof(std::uint64_t);
constexpr std::uint64_t kMaxAddressBytes = 1 << 16;

}  // namespace

void SideChannel::set_address(std::span<const std::byte> address) {
  const std::array<std::uint64_t, 2> head{kMagic, address.size()};
  greeting_.resize(sizeof head + address.size());
  std::memcpy(greeting_.data(), head.data(), sizeof head);
  std::ranges::copy(address, greeting_.begin() + sizeof head);
}

net::IoResult SideChannel::exchange_addresses() {
  if (!greeting_.empty()) {
    const net::IoResult sent = net::write_some(socket_.get(), greeting_);
    greeting_.erase(greeting_.begin(),
                    greeting_.begin() + static_cast<std::ptrdiff_t>(sent.n_bytes));
  }
  if (const net::IoResult head = fill(kGreetingHead); head.status != net::IoStatus::kDone) {
    return head;
  }
  std::array<std::uint64_t, 2> head{};
  std::memcpy(head.data(), peers_greeting_.data(), sizeof head);
  if (head[0] != kMagic || head[1] > kMaxAddressBytes) {
    return {.status = net::IoStatus::kError, .error_number = EPROTO};
  }
  const net::IoResult result = fill(kGreetingHead + head[1]);
  return result.status == net::IoStatus::kDone && !greeting_.empty()
             ? net::IoResult{.status = net::IoStatus::kWouldBlock}
             : result;
}

net::IoResult SideChannel::fill(std::size_t n_bytes) {
  while (peers_greeting_.size() < n_bytes) {
    const std::size_t n_before = peers_greeting_.size();
    peers_greeting_.resize(n_bytes);
    const net::IoResult result =
        net::read_some(socket_.get(), std::span(peers_greeting_).subspan(n_before));
    peers_greeting_.resize(n_before + result.n_bytes);
    if (result.status != net::IoStatus::kDone) {
      note_end(result);
      return result;
    }
  }
  return {.status = net::IoStatus::kDone};
}

std::span<const std::byte> SideChannel::peers_address() const noexcept {
  return std::span(peers_greeting_).subspan(kGreetingHead);
}

net::IoResult SideChannel::read_plain(std::span<std::byte> bytes) noexcept {
  const std::size_t n_bytes = std::min(bytes.size(), peers_greeting_.size());
  if (n_bytes == 0) {
    return net::read_some(socket_.get(), bytes);
  }
  std::copy_n(peers_greeting_.begin(), n_bytes, bytes.begin());
  peers_greeting_.erase(peers_greeting_.begin(),
                        peers_greeting_.begin() + static_cast<std::ptrdiff_t>(n_bytes));
  return {.status = net::IoStatus::kDone, .n_bytes = n_bytes};
}

void SideChannel::end(std::optional<std::uint64_t> n_written) noexcept {
  if (n_written) {
    (void)net::write_some(socket_.get(), std::as_bytes(std::span(&*n_written, 1)));
  }
  ::shutdown(socket_.get(), SHUT_WR);
}

bool SideChannel::hear_end() noexcept {
  if (has_ended()) {
    return false;
  }
  const net::IoResult result = net::read_some(socket_.get(), std::span(word_).subspan(n_of_word_));
  note_end(result);
  n_of_word_ += result.n_bytes;
  if (n_of_word_ == word_.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, word_.data(), sizeof word);
    n_peer_wrote_ = word;
  }
  return has_ended();
}

void SideChannel::note_end(const net::IoResult& result) noexcept {
  if (result.status == net::IoStatus::kClosed || result.status == net::IoStatus::kError) {
    is_peer_gone_ = true;
    error_number_ = result.error_number;
  }
}

}  // namespace unisono::ucx
