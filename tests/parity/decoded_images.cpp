// Writes the pixels of image files to standard output, for compare_images.py.
//
//     decoded_images WHAT CHANNELS HEIGHT WIDTH PATH...
//
// WHAT is decode, resize or cover; decode ignores HEIGHT and WIDTH. Each image is a line "CHANNELS
// HEIGHT WIDTH" followed by its bytes, channel after channel.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <span>
#include <string>

#include "unisono/datasets/decode_image.h"
#include "unisono/datasets/transforms.h"

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  if (words.size() < 6) {
    std::cerr << "usage: decoded_images WHAT CHANNELS HEIGHT WIDTH PATH...\n";
    return 2;
  }
  const std::string what = words[1];
  try {
    const std::int64_t height = std::stoll(words[3]);
    const std::int64_t width = std::stoll(words[4]);
    for (const char* const path : words.subspan(5)) {
      unisono::datasets::DecodedImage image =
          unisono::datasets::read_image(path, {.channels = std::stoll(words[2])});
      if (what != "decode") {
        image.pixels =
            what == "resize"
                ? unisono::datasets::resize_image(image.shape, image.pixels, height, width)
                : unisono::datasets::cover_with_image(image.shape, image.pixels, height, width);
        image.shape.height = height;
        image.shape.width = width;
      }
      std::printf("%lld %lld %lld\n",
                  static_cast<long long>(image.shape.channels),
                  static_cast<long long>(image.shape.height),
                  static_cast<long long>(image.shape.width));
      std::fwrite(image.pixels.data(), 1, image.pixels.size(), stdout);
    }
  } catch (const std::exception& error) {
    std::cerr << "decoded_images: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
