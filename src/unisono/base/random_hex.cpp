#include "unisono/base/random_hex.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "unisono/base/error.h"

namespace unisono {

std::string random_hex(std::size_t n_bytes) {
  std::string raw(n_bytes, '\0');
  // Requests of up to 256 bytes are never cut short.
  if (::getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) {
    throw system_error("getrandom", errno);
  }
  std::string hex;
  for (const char byte : raw) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return hex;
}

}  // namespace unisono
