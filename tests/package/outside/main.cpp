#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include "unisono/data/images/decode_image.h"
#include "unisono/data/sounds/decode_wav.h"
#include "unisono/unisono.h"

namespace {

template <class Action>
const char* code_of(Action action) {
  try {
    action();
  } catch (const unisono::Error& error) {
    return unisono::to_string(error.code());
  }
  return "none";
}

}  // namespace

int main() {
  std::array<double, 3> values{};
  const unisono::Buffer buffer = unisono::as_buffer(std::span<double>(values));
  const unisono::Error error(unisono::ErrorCode::kTimeout, "late");
  const std::vector<std::byte> nothing;
  // Everything is linked that a group needs.
  const char* const no_group =
      code_of([] { (void)unisono::init_process_group({.init_method = "tcp://nowhere"}); });
  std::printf("%s %lld %s %s %s %s\n",
              unisono::to_string(buffer.dtype),
              static_cast<long long>(buffer.n_bytes()),
              unisono::to_string(error.code()),
              code_of([&] { (void)unisono::decode_image(nothing, "nothing"); }),
              code_of([&] { (void)unisono::decode_wav(nothing, "nothing"); }),
              no_group);
}
