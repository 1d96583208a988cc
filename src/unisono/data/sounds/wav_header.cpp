#include "unisono/data/sounds/wav_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/error.h"

namespace unisono::data {
namespace {

constexpr std::size_t kChunkHeaderBytes = 8;
constexpr std::size_t kFormatBytes = 16;
constexpr std::size_t kSubformatAt = 24;
constexpr std::uint16_t kExtensible = 0xFFFE;
// Whole numbers, floating point, A-law, mu-law.
constexpr std::array<std::uint16_t, 4> kPlainFormats{1, 3, 6, 7};

std::string_view text_at(std::span<const std::byte> file, std::size_t at) {
  return {reinterpret_cast<const char*>(file.data()) + at, 4};
}

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t at) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

[[noreturn]] void throw_bad(const std::string& name,
                            std::size_t offset,
                            const std::string& problem) {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: at offset {}: {}", name, offset, problem));
}

void check_format(std::span<const std::byte> format, const std::string& name, std::size_t offset) {
  if (format.size() < kFormatBytes) {
    throw_bad(
        name,
        offset,
        fmt::format(
            "the chunk \"fmt \" has {} bytes; {} are the least", format.size(), kFormatBytes));
  }
  auto tag = number_at<std::uint16_t>(format, 0);
  if (tag == kExtensible && format.size() >= kSubformatAt + sizeof(tag)) {
    tag = number_at<std::uint16_t>(format, kSubformatAt);
  }
  if (std::ranges::find(kPlainFormats, tag) == kPlainFormats.end()) {
    throw_bad(name,
              offset,
              fmt::format("the samples are of format {:#06x}; integers (1), floating point (3), "
                          "A-law (6) and mu-law (7) can be read: convert the file",
                          tag));
  }
}

}  // namespace

void check_wav(std::span<const std::byte> file, const std::string& name) {
  constexpr std::size_t kHeaderBytes = 12;
  if (file.size() < kHeaderBytes || text_at(file, 0) != "RIFF" || text_at(file, 8) != "WAVE") {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: is no WAV file: {}",
                            name,
                            file.empty() ? "it is empty"
                                         : "it does not begin with RIFF, a length and WAVE"));
  }
  bool has_format = false;
  std::size_t at = kHeaderBytes;
  while (file.size() - at >= kChunkHeaderBytes) {
    const std::string_view kind = text_at(file, at);
    const auto n_bytes = number_at<std::uint32_t>(file, at + 4);
    const std::size_t n_there = file.size() - at - kChunkHeaderBytes;
    if (n_bytes > n_there) {
      std::string shown(kind);
      std::ranges::replace_if(
          shown, [](unsigned char letter) { return std::isprint(letter) == 0; }, '?');
      throw_bad(name,
                at,
                fmt::format("the file ends early: {} of {} bytes of the chunk \"{}\" are there",
                            n_there,
                            n_bytes,
                            shown));
    }
    if (kind == "fmt ") {
      check_format(file.subspan(at + kChunkHeaderBytes, n_bytes), name, at);
      has_format = true;
    }
    if (kind == "data") {
      if (!has_format) {
        throw_bad(name, at, "samples come before the chunk \"fmt \" that says what they are");
      }
      return;
    }
    // A chunk of an odd length is followed by a byte that does not count.
    at = std::min(at + kChunkHeaderBytes + n_bytes + n_bytes % 2, file.size());
  }
  throw_bad(name, at, "the file ends early: there is no chunk \"data\" with samples");
}

}  // namespace unisono::data
