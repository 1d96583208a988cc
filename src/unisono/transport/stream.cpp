#include "unisono/transport/stream.h"

#include <poll.h>

#include <array>
#include <cstddef>
#include <exception>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/net/io.h"

namespace unisono::transport {

void discard_until_closed(Stream& stream, Deadline deadline) noexcept {
  try {
    std::array<std::byte, 4096> discarded{};
    while (!deadline.has_passed()) {
      const net::IoResult result = stream.read_some(discarded);
      if (result.status == net::IoStatus::kClosed || result.status == net::IoStatus::kError) {
        return;
      }
      if (result.status == net::IoStatus::kWouldBlock) {
        std::vector<pollfd> polls;
        stream.add_polls(polls, true, false);
        (void)::poll(polls.data(), polls.size(), deadline.poll_timeout_ms());
      }
    }
  } catch (const std::exception&) {
    return;  // Out of memory, say: then the other side reads as far as it came.
  }
}

}  // namespace unisono::transport
