#include "peer.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/cli/bench_parse.h"

namespace bench {

PeerArguments parse_peer_arguments(int argc, char** argv) {
  double seconds = 0;
  const std::string_view text = argc == 4 ? argv[3] : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         "no benchmark was given; write: OPERATION SIZES SECONDS");
  }
  return {.operation = argv[1],
          .sizes = unisono::cli::bench::parse_sizes(argv[2]),
          .seconds = std::chrono::duration<double>(seconds)};
}

FloatArray::FloatArray(std::int64_t count) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t n_pages = static_cast<std::size_t>(count) * sizeof(float) / kPageBytes + 1;
  data_.reset(static_cast<float*>(std::aligned_alloc(kPageBytes, n_pages * kPageBytes)));
  if (data_ == nullptr) {
    throw std::bad_alloc();
  }
  std::fill_n(data_.get(), count, 0.0F);
}

void FloatArray::Free::operator()(float* data) const {
  std::free(data);
}

}  // namespace bench
