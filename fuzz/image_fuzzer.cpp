// JPEG and PNG images, decoded to the number of channels in the first byte.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "unisono/base/error.h"
#include "unisono/datasets/decode_image.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

constexpr std::int64_t kMaxPixels = 1 << 14;

// Returns std::nullopt if the file is not a valid image.
std::optional<datasets::DecodedImage> decode(std::span<const std::byte> file,
                                             std::int64_t channels) {
  try {
    return datasets::decode_image(file, "fuzz", {.channels = channels, .max_pixels = kMaxPixels});
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData, error.what());
    return std::nullopt;
  }
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  unisono::fuzz::Input input(data, size);
  const std::int64_t channels = input.take_u8() % 2 == 0 ? 3 : 1;
  const auto image = unisono::fuzz::decode(input.rest(), channels);
  if (!image) {
    return 0;
  }
  const unisono::datasets::ImageShape& shape = image->shape;
  expect(shape.channels == channels && shape.height > 0 && shape.width > 0, "it has a shape");
  expect(shape.height * shape.width <= unisono::fuzz::kMaxPixels, "large images are refused");
  expect(image->pixels.size() == static_cast<std::size_t>(shape.n_pixels()), "all pixels came");
  const auto again = unisono::fuzz::decode(input.rest(), channels);
  expect(again && again->pixels == image->pixels, "the same bytes are the same image");
  return 0;
}
