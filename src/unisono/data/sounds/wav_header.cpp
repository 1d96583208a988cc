#include "unisono/data/sounds/wav_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/placeholder.h"
#include "unisono/base/text_lines.h"

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

void append_text(std::vector<std::byte>& bytes, std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

void append_size(std::vector<std::byte>& bytes, std::size_t size) {
  const auto number = static_cast<std::uint32_t>(size);
  const auto raw = std::as_bytes(std::span(&number, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

// A file in the order of its chunks.
class Walk {
 public:
  Walk(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  WavChunks run() {
    check_beginning();
    while (file_.size() - at_ >= kChunkHeaderBytes) {
      const std::string_view kind = text_at(file_, at_);
      const auto stated = number_at<std::uint32_t>(file_, at_ + 4);
      const std::size_t n_there = file_.size() - at_ - kChunkHeaderBytes;
      if (kind == "data") {
        return at_samples(stated, n_there);
      }
      check_is_there(kind, stated, n_there);
      const auto content = file_.subspan(at_ + kChunkHeaderBytes, stated);
      if (kind == "fmt ") {
        check_format(content, name_, at_);
        format_ = content;
      }
      if (kind == "ds64" && has_64_bits_ && content.size() >= kLeastSizesBytes) {
        data_bytes_ = number_at<std::uint64_t>(content, kDataBytesAt);
      }
      // A chunk of an odd length is followed by a byte that does not count.
      at_ = std::min(at_ + kChunkHeaderBytes + stated + stated % 2, file_.size());
    }
    throw_bad(name_, at_, "the file ends early: there is no chunk \"data\" with samples");
  }

 private:
  void check_beginning() {
    const bool is_wave = file_.size() >= kHeaderBytes && text_at(file_, 8) == "WAVE";
    const std::string_view kind = is_wave ? text_at(file_, 0) : "";
    has_64_bits_ = kind == "RF64" || kind == "BW64";
    if (kind != "RIFF" && !has_64_bits_) {
      check_no_placeholder(name_, file_);
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: is no WAV file: {}",
                              name_,
                              file_.empty() ? "it is empty"
                                            : "it does not begin with RIFF, a length and WAVE"));
    }
  }

  [[nodiscard]] WavChunks at_samples(std::uint32_t stated, std::size_t n_there) const {
    if (!format_) {
      throw_bad(name_, at_, "samples come before the chunk \"fmt \" that says what they are");
    }
    const bool is_streamed =
        data_bytes_ ? *data_bytes_ == 0 || *data_bytes_ == kNoSize : is_no_size(stated, n_there);
    const std::uint64_t n_bytes = is_streamed ? n_there : data_bytes_.value_or(stated);
    check_is_there("data", n_bytes, n_there);
    return {.format = *format_,
            .samples = file_.subspan(at_ + kChunkHeaderBytes, n_bytes),
            .is_streamed = is_streamed};
  }

  // Writers that cannot go back to the header leave 0 or a size near 2 or 4 GiB in it: FFFFFFFF,
  // 7FFFF000. Files of so many bytes are not read. Samples that a chunk of 0 bytes does not count
  // are there where the size of the whole does not count them either.
  [[nodiscard]] bool is_no_size(std::uint32_t stated, std::size_t n_there) const {
    constexpr std::uint32_t kLeast = 0x7FFFF000;
    const auto whole = number_at<std::uint32_t>(file_, 4);
    const bool counts_rest = whole < kLeast && whole > at_;
    return stated > n_there ? stated >= kLeast : stated == 0 && n_there > 0 && !counts_rest;
  }

  void check_is_there(std::string_view kind, std::uint64_t n_bytes, std::size_t n_there) const {
    if (n_bytes > n_there) {
      throw_bad(name_,
                at_,
                fmt::format("the file ends early: {} of {} bytes of the chunk \"{}\" are there",
                            n_there,
                            n_bytes,
                            escape_text(kind)));
    }
  }

  static constexpr std::size_t kHeaderBytes = 12;
  // In the chunk "ds64", behind the size of the whole.
  static constexpr std::size_t kDataBytesAt = 8;
  static constexpr std::size_t kLeastSizesBytes = 16;
  static constexpr std::uint64_t kNoSize = ~std::uint64_t{0};

  std::span<const std::byte> file_;
  const std::string& name_;
  std::size_t at_ = kHeaderBytes;
  bool has_64_bits_ = false;
  std::optional<std::uint64_t> data_bytes_;
  std::optional<std::span<const std::byte>> format_;
};

}  // namespace

WavChunks find_wav_chunks(std::span<const std::byte> file, const std::string& name) {
  return Walk(file, name).run();
}

std::vector<std::byte> plain_wav_header(const WavChunks& chunks) {
  const std::size_t n_format = chunks.format.size() + chunks.format.size() % 2;
  std::vector<std::byte> header;
  append_text(header, "RIFF");
  append_size(header, 4 + 2 * kChunkHeaderBytes + n_format + chunks.samples.size());
  append_text(header, "WAVEfmt ");
  append_size(header, chunks.format.size());
  header.insert(header.end(), chunks.format.begin(), chunks.format.end());
  header.resize(header.size() + n_format - chunks.format.size());
  append_text(header, "data");
  append_size(header, chunks.samples.size());
  return header;
}

}  // namespace unisono::data
