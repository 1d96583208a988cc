// The store's request parser, fed whole and in parts.
//
// Input: u8 bytes per feed, then the stream.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/store/requests.h"
#include "unisono/store/store.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

using store::Request;

// Small enough for inputs to reach the limits.
constexpr store::Limits kLimits{
    .max_key_bytes = 64, .max_value_bytes = 256, .max_count = 8, .max_request_bytes = 1024};

struct Parsed {
  std::vector<Request> requests;
  std::string problem;
};

std::size_t text_bytes(const std::vector<std::string>& texts) {
  std::size_t n_bytes = 0;
  for (const std::string& text : texts) {
    n_bytes += text.size();
  }
  return n_bytes;
}

Parsed parse(std::span<const std::byte> bytes, std::size_t n_per_feed) {
  store::RequestParser parser(kLimits);
  Parsed parsed;
  std::size_t n_taken = 0;
  while (n_taken < bytes.size() && parser.problem().empty()) {
    const std::size_t n = std::min(n_per_feed, bytes.size() - n_taken);
    const std::size_t n_now = parser.feed(bytes.subspan(n_taken, n));
    expect(n_now <= n, "no more is taken than there is");
    n_taken += n_now;
    if (std::optional<Request> request = parser.take()) {
      const std::size_t n_text = text_bytes(request->keys) + text_bytes(request->values);
      expect(n_text <= n_taken, "a request holds nothing that did not come");
      expect(n_text <= request->n_bytes && request->n_bytes <= kLimits.max_request_bytes,
             "a request is within its limit");
      parsed.requests.push_back(std::move(*request));
    } else {
      expect(n_now == n || !parser.problem().empty(), "bytes are left only behind a request");
    }
  }
  parsed.problem = parser.problem();
  return parsed;
}

void compare(const Parsed& a, const Parsed& b) {
  expect(a.problem == b.problem, "cuts make no other problem");
  expect(a.requests.size() == b.requests.size(), "cuts make no other requests");
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    const Request& left = a.requests[i];
    const Request& right = b.requests[i];
    expect(left.opcode == right.opcode && left.keys == right.keys && left.values == right.values &&
               left.number == right.number && left.n_bytes == right.n_bytes,
           "cuts make no other request");
  }
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::Input input(data, size);
  const std::size_t n_per_feed = std::max<std::size_t>(1, input.take_u8());
  unisono::fuzz::compare(unisono::fuzz::parse(input.rest(), n_per_feed),
                         unisono::fuzz::parse(input.rest(), input.rest().size()));
  return 0;
}
