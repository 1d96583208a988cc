#include "unisono/base/crash/safe_text.h"

#include <errno.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "unisono/base/deadline.h"

namespace unisono::crash {
namespace {

// So much fits into a pipe that poll() says takes more.
constexpr std::size_t kPieceBytes = 4096;
constexpr int kPollMs = 100;

}  // namespace

SafeText& SafeText::add(std::string_view text) {
  size_ += text.copy(bytes_.data() + size_, bytes_.size() - size_);
  return *this;
}

SafeText& SafeText::add_decimal(std::uint64_t number) {
  return add_number(number, 10);
}

SafeText& SafeText::add_hex(std::uint64_t number) {
  return add("0x").add_number(number, 16);
}

SafeText& SafeText::add_number(std::uint64_t number, std::uint64_t base) {
  std::array<char, 20> digits{};
  std::size_t first = digits.size();
  do {
    digits[--first] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number != 0);
  return add({digits.data() + first, digits.size() - first});
}

bool write_to_stderr(std::string_view text, Deadline deadline) {
  while (!text.empty()) {
    // Whoever reads the pipe may have stopped; that must not keep the process from dying.
    pollfd writable{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&writable, 1, kPollMs) > 0) {
      const ssize_t n =
          ::write(STDERR_FILENO, text.data(), std::min<std::size_t>(text.size(), kPieceBytes));
      if (n < 0 && errno != EINTR && errno != EAGAIN) {
        return false;
      }
      text.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
    } else if (deadline.has_passed()) {
      return false;
    }
  }
  return true;
}

}  // namespace unisono::crash
