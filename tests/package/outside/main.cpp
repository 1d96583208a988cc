#include <array>
#include <cstdio>
#include <span>

#include "unisono/data/data_loader.h"
#include "unisono/unisono.h"

#include "code_of.h"

int main() {
  std::array<double, 3> values{};
  const unisono::Buffer buffer = unisono::as_buffer(std::span<double>(values));
  const unisono::Error error(unisono::ErrorCode::kTimeout, "late");
  // This call links everything that a group needs.
  const char* const no_group =
      code_of([] { (void)unisono::init_process_group({.init_method = "tcp://nowhere"}); });
  std::printf("%s %lld %s %s\n",
              unisono::to_string(buffer.dtype),
              static_cast<long long>(buffer.n_bytes()),
              unisono::to_string(error.code()),
              no_group);
}
