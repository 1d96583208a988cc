#include <array>
#include <cstdio>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"

int main() {
  std::array<double, 3> values{};
  const unisono::Buffer buffer = unisono::as_buffer(std::span<double>(values));
  const unisono::Error error(unisono::ErrorCode::kTimeout, "late");
  std::printf("%s %lld %s\n",
              unisono::to_string(buffer.dtype),
              static_cast<long long>(buffer.n_bytes()),
              unisono::to_string(error.code()));
}
