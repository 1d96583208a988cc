// WAV files.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/base/error.h"
#include "unisono/datasets/wav.h"

#include "expect.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  try {
    const unisono::datasets::Sound sound =
        unisono::datasets::decode_wav(std::as_bytes(std::span(data, size)), "fuzz");
    expect(!sound.samples.empty() && sound.samples.size() <= size, "samples are in the file");
    expect(std::ranges::all_of(sound.samples, [](float value) { return std::isfinite(value); }),
           "samples are numbers");
  } catch (const unisono::Error& error) {
    expect(error.code() == unisono::ErrorCode::kCorruptData, error.what());
  }
  return 0;
}
